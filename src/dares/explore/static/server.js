// Questions to the server on this machine. An answer that is an error is thrown as its sentence.

export async function ask(address, question) {
  const options = question && {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(question),
  };
  let response;
  try {
    response = await fetch(`api/${address}`, options);
  } catch {
    throw new Error("the server does not answer: is dares explore still running?");
  }
  const answer = await response.json().catch(() => ({}));
  if (!response.ok) {
    throw new Error(answer.error ?? `the server answered ${response.status}`);
  }
  return answer;
}

// Runs the work again and again while it is asked for, never two at once: the server is asked
// about what is on the page now, not about every key that was pressed on the way.
export function oneAtATime(work) {
  let running = false;
  let again = false;
  return async function run() {
    again = true;
    if (running) return;
    running = true;
    try {
      while (again) {
        again = false;
        await work();
      }
    } finally {
      running = false;
    }
  };
}
