// A static program with a resolver of its own: nothing of it goes through the C library.
//
// usage: resolver fetch URL...          prints each answer
//
//	resolver lookup NAME...        prints `NAME: N addresses`, or the error
//	resolver raw HOST:PORT         sends a request by hand and prints the first line of the answer
//	resolver storm URL COUNT       fetches it COUNT times at once and prints how many answered 200
package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
)

func fetch(client *http.Client, url string) (int, string, error) {
	answer, err := client.Get(url)
	if err != nil {
		return 0, "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	return answer.StatusCode, answer.Proto + " " + string(text), err
}

func storm(url string, count int) {
	var all sync.WaitGroup
	var good int64
	for range make([]struct{}, count) {
		all.Add(1)
		go func() {
			defer all.Done()
			// A connection each.
			client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
			status, _, err := fetch(client, url)
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
			} else if status == 200 {
				atomic.AddInt64(&good, 1)
			}
		}()
	}
	all.Wait()
	fmt.Printf("%d of %d\n", good, count)
}

func raw(address string) error {
	connection, err := net.Dial("tcp", address)
	if err != nil {
		return err
	}
	defer connection.Close()
	host, _, _ := net.SplitHostPort(address)
	fmt.Fprintf(connection, "GET /name HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", host)
	line, err := bufio.NewReader(connection).ReadString('\n')
	if err == nil {
		fmt.Print(line)
	}
	return err
}

func main() {
	failed := false
	complain := func(err error) {
		failed = true
		fmt.Fprintln(os.Stderr, err)
	}
	words := os.Args[2:]
	switch os.Args[1] {
	case "fetch":
		for _, url := range words {
			if _, text, err := fetch(http.DefaultClient, url); err != nil {
				complain(err)
			} else {
				fmt.Print(text)
			}
		}
	case "lookup":
		for _, name := range words {
			addresses, err := net.DefaultResolver.LookupHost(context.Background(), name)
			if err != nil {
				complain(err)
			} else {
				fmt.Printf("%s: %d addresses\n", name, len(addresses))
			}
		}
	case "raw":
		if err := raw(words[0]); err != nil {
			complain(err)
		}
	case "storm":
		count, err := strconv.Atoi(words[1])
		if err != nil {
			complain(err)
			break
		}
		storm(words[0], count)
	}
	if failed {
		os.Exit(1)
	}
}
