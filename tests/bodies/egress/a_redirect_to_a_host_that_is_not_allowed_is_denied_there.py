import urllib.request, urllib.error
def fetch(to):
    try:
        return urllib.request.urlopen(f'http://{name}/to/{to}', timeout=20).read().decode().split()[0]
    except OSError as error:
        return told(getattr(error, 'reason', error))
say('allowed', fetch(name))
say('a name', fetch(unique + '.evil.example'))
say('an address', fetch('93.184.216.76'))
