"""python -m dares.bench.traffic: the tables of ops/depth_mix/README.md."""

from dares.bench.traffic.table import WIDTH, bytes_table, vectors_table

print("Vectors of width D a token, float32, forward + backward:\n")
print(vectors_table())
print(f"\nMiB a token, D = {WIDTH}, bfloat16, forward and backward:\n")
print(bytes_table())
