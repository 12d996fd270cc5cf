// Work at a fixed rate, and many streams.
package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

const (
	e2eWarm      = time.Second
	createsAhead = 32
	createTries  = 20
	createWait   = 100 * time.Millisecond
	replicas     = 3
)

// due is when message i of a fixed rate is to be sent, after the beginning.
func (l *load) due(i int) time.Duration {
	return time.Duration(float64(i) * float64(time.Second) / float64(l.pace))
}

// endToEnd counts from the moment a message was due, not from when it was sent.
func (l *load) endToEnd() (map[string]float64, error) {
	ctx := context.Background()
	warmed := int(e2eWarm.Seconds() * float64(l.pace))
	total := warmed + int(l.seconds.Seconds()*float64(l.pace))
	took := make([]time.Duration, total)
	arrived, seen, base := make(chan struct{}), 0, time.Now()
	consumer, err := l.js.OrderedConsumer(ctx, l.stream, jetstream.OrderedConsumerConfig{
		DeliverPolicy: jetstream.DeliverNewPolicy,
	})
	if err != nil {
		return nil, err
	}
	reading, err := consumer.Consume(func(message jetstream.Msg) {
		now, data := time.Since(base), message.Data()
		took[binary.BigEndian.Uint32(data)] = now - time.Duration(binary.BigEndian.Uint64(data[4:]))
		seen++
		if seen == total {
			close(arrived)
		}
	})
	if err != nil {
		return nil, err
	}
	defer reading.Stop()
	time.Sleep(warm)
	began := time.Since(base)
	for i := range total {
		due := began + l.due(i)
		time.Sleep(due - time.Since(base))
		value := slices.Clone(l.value)
		binary.BigEndian.PutUint32(value, uint32(i))
		binary.BigEndian.PutUint64(value[4:], uint64(due))
		if _, err := l.js.PublishAsync(l.subject, value); err != nil {
			return nil, err
		}
	}
	select {
	case <-arrived:
	case <-time.After(answerWait):
		return nil, errors.New("not all messages arrived")
	}
	return percentiles(took[warmed:]), nil
}

func (l *load) steady() {
	var lock sync.Mutex
	say := func(format string, arguments ...any) {
		lock.Lock()
		defer lock.Unlock()
		fmt.Printf(format, arguments...)
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	base := time.Now()
	for i := 0; ; i++ {
		time.Sleep(l.due(i) - time.Since(base))
		go func() {
			if _, err := l.js.Publish(context.Background(), l.subject, l.value); err != nil {
				say("E %v\n", err)
				return
			}
			say("A %d\n", time.Now().UnixNano())
		}()
	}
}

// create makes streams, some at a time, each until it is there.
func (l *load) create() (map[string]float64, error) {
	names := make(chan string)
	failed := make(chan error, createsAhead)
	var makers sync.WaitGroup
	began := time.Now()
	for range createsAhead {
		makers.Add(1)
		go func() {
			defer makers.Done()
			for name := range names {
				if err := l.createOne(name); err != nil {
					select {
					case failed <- err:
					default:
					}
				}
			}
		}()
	}
	for i := range l.records {
		names <- fmt.Sprintf("%s%d", l.stream, i)
	}
	close(names)
	makers.Wait()
	select {
	case err := <-failed:
		return nil, err
	default:
	}
	return map[string]float64{"value": time.Since(began).Seconds(), "count": float64(l.records)}, nil
}

func (l *load) createOne(name string) error {
	var err error
	for range createTries {
		ctx, cancel := context.WithTimeout(context.Background(), answerWait)
		_, err = l.js.CreateStream(ctx, jetstream.StreamConfig{
			Name: name, Subjects: []string{name + ".>"}, Replicas: replicas, Storage: jetstream.FileStorage,
		})
		cancel()
		if err == nil || errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
			return nil
		}
		time.Sleep(createWait)
	}
	return err
}

func percentiles(took []time.Duration) map[string]float64 {
	slices.Sort(took)
	at := func(share float64) float64 {
		return float64(took[int(share*float64(len(took)-1))]) / float64(time.Millisecond)
	}
	return map[string]float64{
		"value": at(.5), "p50_ms": at(.5), "p99_ms": at(.99), "p99.9_ms": at(.999), "max_ms": at(1),
		"count": float64(len(took)),
	}
}
