import sys, urllib.request
for url in sys.argv[1:]:
    with urllib.request.urlopen(url) as answer:
        print(answer.status, answer.read().decode(), end="")
