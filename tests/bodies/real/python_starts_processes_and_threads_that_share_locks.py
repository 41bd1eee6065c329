import concurrent.futures, multiprocessing
with multiprocessing.Pool(3) as pool:
    print(pool.map(abs, [-1, -2, -3]))
with concurrent.futures.ThreadPoolExecutor(8) as threads:
    print(sum(threads.map(abs, range(-10, 0))))
