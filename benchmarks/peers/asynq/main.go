// The producer and the worker of asynq; see benchmarks/peers/programs.py for the modes and the answers.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hibiken/asynq"
)

const (
	payloadSize = 100
	warmUp      = 3
	// asynq has no call for many tasks. More goroutines than this do not make it faster on two cores.
	producers = 32
)

func main() {
	log.SetFlags(0)
	redis, err := asynq.ParseRedisURI(os.Getenv("BENCH_REDIS_URL"))
	if err != nil {
		log.Fatal(err)
	}
	if os.Args[1] == "worker" {
		work(redis)
		return
	}
	client := asynq.NewClient(redis)
	defer client.Close()
	if err := client.Ping(); err != nil {
		log.Fatal(err)
	}
	count := number(os.Args[2])
	var figures any
	switch os.Args[1] {
	case "bulk":
		figures = timed(count, func() { bulk(client, count) })
	case "single":
		figures = timed(count, func() { enqueueSome(client, count) })
	case "latency":
		figures = latency(client, count, time.Duration(number(os.Args[3]))*time.Second)
	default:
		log.Fatalf("no such mode: %s", os.Args[1])
	}
	if err := json.NewEncoder(os.Stdout).Encode(figures); err != nil {
		log.Fatal(err)
	}
}

func work(redis asynq.RedisConnOpt) {
	mux := asynq.NewServeMux()
	mux.HandleFunc("noop", func(context.Context, *asynq.Task) error { return nil })
	mux.HandleFunc("probe", answerProbe)
	server := asynq.NewServer(redis, asynq.Config{
		Concurrency: number(os.Getenv("BENCH_CONCURRENCY")),
		LogLevel:    asynq.ErrorLevel,
	})
	if err := server.Run(mux); err != nil {
		log.Fatal(err)
	}
}

func answerProbe(_ context.Context, task *asynq.Task) error {
	started := time.Now().UnixNano()
	fields := strings.SplitN(string(task.Payload()), ":", 3)
	sent, err := strconv.ParseInt(fields[0], 10, 64)
	if err != nil {
		return err
	}
	answer, err := net.Dial("udp4", "127.0.0.1:"+fields[1])
	if err != nil {
		return err
	}
	defer answer.Close()
	_, err = fmt.Fprint(answer, started-sent)
	return err
}

func bulk(client *asynq.Client, count int) {
	var group sync.WaitGroup
	for i := range producers {
		share := count / producers
		if i < count%producers {
			share++
		}
		group.Add(1)
		go func() {
			defer group.Done()
			enqueueSome(client, share)
		}()
	}
	group.Wait()
}

func enqueueSome(client *asynq.Client, count int) {
	payload := []byte(strings.Repeat("x", payloadSize))
	for range count {
		enqueue(client, asynq.NewTask("noop", payload))
	}
}

func enqueue(client *asynq.Client, task *asynq.Task) {
	if _, err := client.Enqueue(task); err != nil {
		log.Fatal(err)
	}
}

func latency(client *asynq.Client, count int, limit time.Duration) any {
	answers, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		log.Fatal(err)
	}
	defer answers.Close()
	port := answers.LocalAddr().(*net.UDPAddr).Port
	until := time.Now().Add(limit)
	var taken []int
	buffer := make([]byte, 64)
	for len(taken) < warmUp+1 || (len(taken) < warmUp+count && time.Now().Before(until)) {
		text := fmt.Sprintf("%d:%d:", time.Now().UnixNano(), port)
		payload := text + strings.Repeat("x", payloadSize-len(text))
		enqueue(client, asynq.NewTask("probe", []byte(payload)))
		size, err := answers.Read(buffer)
		if err != nil {
			log.Fatal(err)
		}
		taken = append(taken, number(string(buffer[:size])))
		longest := 0
		if len(taken) > warmUp {
			longest = slices.Max(taken[warmUp:])
		}
		// The same pause as in programs.py, where it is explained.
		time.Sleep(20*time.Millisecond + time.Duration(80e6*rand.Float64()+rand.Float64()*float64(longest)))
	}
	return map[string]any{"latencies_ns": taken[warmUp:]}
}

func timed(count int, body func()) any {
	started := time.Now()
	body()
	return map[string]any{"count": count, "seconds": time.Since(started).Seconds()}
}

func number(text string) int {
	value, err := strconv.Atoi(text)
	if err != nil {
		log.Fatal(err)
	}
	return value
}
