import concurrent.futures
say('down', dial('down.example.com', 9001), dial('down.example.com', 9001))
say('nowhere', dial('nowhere.zone.example', 9000))
with concurrent.futures.ThreadPoolExecutor() as at_once:
    silent = at_once.submit(dial, 'silent.example.com', 9000, patience=60)
    mute = at_once.submit(dial, 'mute.zone.example', 9000, patience=60)
say('silent', silent.result())
say('mute', mute.result())
