// What franz-go does with a broker, end to end: produce with every codec, idempotent as it is by default, read back
// from the beginning and from inside a batch, wait for a record, and look at the metadata.
//
// Prints one JSON object on success, and one sentence and status 1 otherwise.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const recordsPerCodec = 200

type report struct {
	Records  int   `json:"records"`
	Middle   int64 `json:"middle"`
	Waited   bool  `json:"waited"`
	TooLarge bool  `json:"too_large"`
	Brokers  int   `json:"brokers"`
	Deleted  bool  `json:"deleted"`
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: compat BOOTSTRAP TOPIC")
		os.Exit(2)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	found, err := run(ctx, os.Args[1], os.Args[2])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	_ = json.NewEncoder(os.Stdout).Encode(found)
}

func run(ctx context.Context, bootstrap, topic string) (report, error) {
	var found report
	if err := create(ctx, bootstrap, topic); err != nil {
		return found, fmt.Errorf("create: %w", err)
	}
	codecs := []kgo.CompressionCodec{
		kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression(),
	}
	for number, codec := range codecs {
		if err := produce(ctx, bootstrap, topic, codec, number*recordsPerCodec); err != nil {
			return found, fmt.Errorf("produce with codec %d: %w", number, err)
		}
	}
	count, err := consume(ctx, bootstrap, topic, recordsPerCodec*len(codecs))
	found.Records = count
	if err != nil {
		return found, fmt.Errorf("consume: %w", err)
	}
	if found.Middle, err = first(ctx, bootstrap, topic, 77); err != nil {
		return found, fmt.Errorf("read from the middle: %w", err)
	}
	if found.Waited, err = wait(ctx, bootstrap, topic, int64(count)); err != nil {
		return found, fmt.Errorf("wait: %w", err)
	}
	found.TooLarge = tooLarge(ctx, bootstrap, topic)
	if found.Brokers, err = brokers(ctx, bootstrap); err != nil {
		return found, fmt.Errorf("metadata: %w", err)
	}
	if found.Deleted, err = remove(ctx, bootstrap, topic); err != nil {
		return found, fmt.Errorf("delete: %w", err)
	}
	return found, nil
}

func create(ctx context.Context, bootstrap, topic string) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(bootstrap))
	if err != nil {
		return err
	}
	defer client.Close()
	wanted := kmsg.NewCreateTopicsRequestTopic()
	wanted.Topic, wanted.NumPartitions, wanted.ReplicationFactor = topic, 1, 1
	request := kmsg.NewPtrCreateTopicsRequest()
	request.Topics = append(request.Topics, wanted)
	answer, err := request.RequestWith(ctx, client)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(answer.Topics[0].ErrorCode)
}

func produce(ctx context.Context, bootstrap, topic string, codec kgo.CompressionCodec, start int) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.ProducerBatchCompression(codec))
	if err != nil {
		return err
	}
	defer client.Close()
	records := make([]*kgo.Record, recordsPerCodec)
	for number := range records {
		records[number] = &kgo.Record{
			Topic:   topic,
			Key:     []byte(fmt.Sprintf("key-%d", start+number)),
			Value:   []byte(fmt.Sprintf("value-%d", start+number)),
			Headers: []kgo.RecordHeader{{Key: "h", Value: nil}, {Key: "h", Value: []byte("2")}},
		}
	}
	for number, result := range client.ProduceSync(ctx, records...) {
		if result.Err != nil {
			return result.Err
		}
		if result.Record.Offset != int64(start+number) {
			return fmt.Errorf("record %d has offset %d", start+number, result.Record.Offset)
		}
	}
	return nil
}

func reader(bootstrap, topic string, at int64, options ...kgo.Opt) (*kgo.Client, error) {
	starts := map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().At(at)}}
	return kgo.NewClient(append(options, kgo.SeedBrokers(bootstrap), kgo.ConsumePartitions(starts))...)
}

func consume(ctx context.Context, bootstrap, topic string, wanted int) (int, error) {
	client, err := reader(bootstrap, topic, 0)
	if err != nil {
		return 0, err
	}
	defer client.Close()
	count := 0
	for count < wanted {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return count, err
		}
		for _, record := range fetches.Records() {
			if string(record.Value) != fmt.Sprintf("value-%d", count) || record.Offset != int64(count) {
				return count, fmt.Errorf("offset %d holds %q", record.Offset, record.Value)
			}
			if len(record.Headers) != 2 || record.Headers[0].Value != nil {
				return count, fmt.Errorf("offset %d has headers %v", record.Offset, record.Headers)
			}
			count++
		}
	}
	return count, nil
}

func first(ctx context.Context, bootstrap, topic string, at int64) (int64, error) {
	client, err := reader(bootstrap, topic, at)
	if err != nil {
		return 0, err
	}
	defer client.Close()
	fetches := client.PollFetches(ctx)
	if err := fetches.Err(); err != nil {
		return 0, err
	}
	return fetches.Records()[0].Offset, nil
}

func wait(ctx context.Context, bootstrap, topic string, end int64) (bool, error) {
	client, err := reader(bootstrap, topic, end, kgo.FetchMaxWait(20*time.Second))
	if err != nil {
		return false, err
	}
	defer client.Close()
	got := make(chan kgo.Fetches, 1)
	go func() { got <- client.PollFetches(ctx) }()
	if err := client.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte("late")}).FirstErr(); err != nil {
		return false, err
	}
	fetches := <-got
	if err := fetches.Err(); err != nil {
		return false, err
	}
	return string(fetches.Records()[0].Value) == "late", nil
}

func tooLarge(ctx context.Context, bootstrap, topic string) bool {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(bootstrap), kgo.ProducerBatchMaxBytes(4<<20), kgo.ProducerBatchCompression(kgo.NoCompression()),
	)
	if err != nil {
		return false
	}
	defer client.Close()
	err = client.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: make([]byte, 2<<20)}).FirstErr()
	return errors.Is(err, kerr.MessageTooLarge)
}

func brokers(ctx context.Context, bootstrap string) (int, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(bootstrap))
	if err != nil {
		return 0, err
	}
	defer client.Close()
	answer, err := kmsg.NewPtrMetadataRequest().RequestWith(ctx, client)
	if err != nil {
		return 0, err
	}
	return len(answer.Brokers), nil
}

func remove(ctx context.Context, bootstrap, topic string) (bool, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(bootstrap))
	if err != nil {
		return false, err
	}
	defer client.Close()
	wanted := kmsg.NewDeleteTopicsRequestTopic()
	wanted.Topic = kmsg.StringPtr(topic)
	request := kmsg.NewPtrDeleteTopicsRequest()
	request.Topics = append(request.Topics, wanted)
	request.TopicNames = []string{topic}
	answer, err := request.RequestWith(ctx, client)
	if err != nil {
		return false, err
	}
	return answer.Topics[0].ErrorCode == 0, nil
}
