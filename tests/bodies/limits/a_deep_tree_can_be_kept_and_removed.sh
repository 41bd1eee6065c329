exec python3 -c 'import os
os.chdir("/scratch")
for n in range(1500):
    os.mkdir("d"); os.chdir("d")
print(1500)'
