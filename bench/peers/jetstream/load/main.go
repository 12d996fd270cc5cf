// JetStream's own client for Go as a load generator, for the benchmark of Tidelog.
//
//	load WORK -url nats://127.0.0.1:4222 -stream S [-size 100] [-seconds 3] [-records N] [-rate R]
//
// WORK is publish (asynchronous, a window of unacknowledged messages), serial (one in
// flight), consume (an ordered consumer reads N messages), e2e (R messages a second, read
// by an ordered consumer) or create (N streams S0, S1, … of three replicas). Prints one
// JSON object. steady sends R messages a second until standard input ends and prints "A",
// nanoseconds since the epoch, for each acknowledgement, and "E" for an error.
package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	warm        = 500 * time.Millisecond
	pendingMax  = 4000
	unlimited   = int(^uint(0) >> 1)
	answerWait  = 20 * time.Second
	settleAfter = 30 * time.Second
	// A client that lost its server asks the others at once, and all again so soon.
	reconnectWait = 50 * time.Millisecond
)

type load struct {
	js      jetstream.JetStream
	stream  string
	subject string
	value   []byte
	seconds time.Duration
	records int
	pace    int
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	if len(arguments) == 0 {
		return errors.New("which work? publish, serial, consume, e2e, create or steady")
	}
	flags := flag.NewFlagSet(arguments[0], flag.ContinueOnError)
	url := flags.String("url", nats.DefaultURL, "server")
	stream := flags.String("stream", "", "stream; its subjects are STREAM.>")
	size := flags.Int("size", 100, "bytes of a value")
	seconds := flags.Float64("seconds", 3, "how long to measure")
	records := flags.Int("records", 0, "exactly so many messages instead")
	rate := flags.Int("rate", 1000, "messages per second of e2e and steady")
	if err := flags.Parse(arguments[1:]); err != nil {
		return err
	}
	connection, err := nats.Connect(*url, nats.MaxReconnects(-1), nats.ReconnectWait(reconnectWait))
	if err != nil {
		return err
	}
	defer connection.Close()
	js, err := jetstream.New(connection,
		jetstream.WithPublishAsyncMaxPending(pendingMax),
		jetstream.WithPublishAsyncTimeout(answerWait))
	if err != nil {
		return err
	}
	value := make([]byte, *size)
	if _, err := rand.Read(value); err != nil {
		return err
	}
	l := &load{
		js: js, stream: *stream, subject: *stream + ".x", value: value,
		seconds: time.Duration(*seconds * float64(time.Second)), records: *records, pace: *rate,
	}
	if arguments[0] == "steady" {
		l.steady()
		return nil
	}
	works := map[string]func() (map[string]float64, error){
		"publish": l.publish, "serial": l.serial, "consume": l.consume,
		"e2e": l.endToEnd, "create": l.create,
	}
	work, known := works[arguments[0]]
	if !known {
		return fmt.Errorf("no work is called %q", arguments[0])
	}
	result, err := work()
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(result)
}

func (l *load) rate(count int, took time.Duration) map[string]float64 {
	perSecond := float64(count) / took.Seconds()
	return map[string]float64{
		"value": perSecond, "records": float64(count), "seconds": took.Seconds(),
		"value_mb_per_s": perSecond * float64(len(l.value)) / 1e6,
	}
}

func (l *load) publish() (map[string]float64, error) {
	if l.records > 0 {
		return l.publishSome(time.Hour, l.records)
	}
	if _, err := l.publishSome(warm, unlimited); err != nil {
		return nil, err
	}
	return l.publishSome(l.seconds, unlimited)
}

// publishSome ends with the last acknowledgement; one that is an error fails it.
func (l *load) publishSome(limit time.Duration, count int) (map[string]float64, error) {
	began, sent := time.Now(), 0
	window := make([]jetstream.PubAckFuture, 0, pendingMax)
	late := time.After(limit + settleAfter)
	for sent < count && time.Since(began) < limit {
		if len(window) == pendingMax {
			// The oldest half has been answered by now, or nearly so.
			for _, future := range window[:pendingMax/2] {
				if err := acknowledged(future, late); err != nil {
					return nil, err
				}
			}
			window = append(window[:0], window[pendingMax/2:]...)
		}
		future, err := l.js.PublishAsync(l.subject, l.value)
		if err != nil {
			return nil, err
		}
		window = append(window, future)
		sent++
	}
	for _, future := range window {
		if err := acknowledged(future, late); err != nil {
			return nil, err
		}
	}
	return l.rate(sent, time.Since(began)), nil
}

func acknowledged(future jetstream.PubAckFuture, late <-chan time.Time) error {
	select {
	case <-future.Ok():
		return nil
	case err := <-future.Err():
		return err
	case <-late:
		return errors.New("a message was not acknowledged")
	}
}

func (l *load) serial() (map[string]float64, error) {
	ctx := context.Background()
	for until := time.Now().Add(warm); time.Now().Before(until); {
		if _, err := l.js.Publish(ctx, l.subject, l.value); err != nil {
			return nil, err
		}
	}
	var took []time.Duration
	for until := time.Now().Add(l.seconds); time.Now().Before(until); {
		began := time.Now()
		if _, err := l.js.Publish(ctx, l.subject, l.value); err != nil {
			return nil, err
		}
		took = append(took, time.Since(began))
	}
	return percentiles(took), nil
}

func (l *load) consume() (map[string]float64, error) {
	ctx := context.Background()
	consumer, err := l.js.OrderedConsumer(ctx, l.stream, jetstream.OrderedConsumerConfig{
		DeliverPolicy: jetstream.DeliverAllPolicy,
	})
	if err != nil {
		return nil, err
	}
	done, seen := make(chan struct{}), 0
	began := time.Now()
	reading, err := consumer.Consume(func(jetstream.Msg) {
		seen++
		if seen == l.records {
			close(done)
		}
	}, jetstream.PullMaxMessages(pendingMax))
	if err != nil {
		return nil, err
	}
	defer reading.Stop()
	select {
	case <-done:
		return l.rate(l.records, time.Since(began)), nil
	case <-time.After(time.Minute):
		return nil, fmt.Errorf("%d of %d messages came within a minute", seen, l.records)
	}
}
