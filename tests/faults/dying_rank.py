"""Under torchrun: a run left alone, then one whose rank 1 is killed after its ninth step, once."""

import os
import sys
from pathlib import Path

from dares.train.loop import train
from dares.train.parallel import joined
from tests.faults.deaths import die
from tests.train.runs import Signals, Workshop


class Dies(Signals):
    """Kills this process after that step."""

    def step(self, line):
        super().step(line)
        if self.steps == self.after:
            die()


def main(folder):
    workshop, first = Workshop(Path(folder)), os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
    with joined("fsdp") as ranks:
        for name in ("left-alone", "killed"):
            last = 9 if first and name == "killed" and ranks.rank == 1 else None
            reporter = Dies(last)
            result = train(
                workshop.recipe(),
                workshop.folder / name,
                ranks=ranks,
                reporter=reporter,
                cache=workshop.cache,
            )
            if ranks.first:
                print(name, result.finished, reporter.steps, reporter.said, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
