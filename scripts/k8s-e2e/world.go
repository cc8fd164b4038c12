package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"errand/pkg/messages"
)

// world is the cluster with everything deployed, and those around it: who publishes, who reads, the sandbox.
type world struct {
	*cluster
	tree  string
	host  string // this process, as the machine knows it
	began time.Time

	producer, subscriber, provisioner jetstream.JetStream
}

const (
	namespace = "errand"
	sandbox   = "http://sandbox.errand.svc.cluster.local:8085/_sandbox"
	broker    = "nats://nats.errand.svc.cluster.local:4222"
)

// consumers are the programs that take requests.
var consumers = []string{"mandate-consumer", "mail-consumer"}

// say prints what has come so far.
func (w *world) say(format string, args ...any) {
	fmt.Printf("%6.1fs  %s\n", time.Since(w.began).Seconds(), fmt.Sprintf(format, args...))
}

// k is kubectl in the namespace.
func (w *world) k(ctx context.Context, args ...string) (string, error) {
	return w.kubectl(ctx, append([]string{"-n", namespace}, args...)...)
}

// apply applies an overlay and gives what was done with each object.
func (w *world) apply(ctx context.Context, overlay string) (string, error) {
	return w.kubectl(ctx, "apply", "-k", filepath.Join(w.tree, "deploy/k8s/overlays", overlay))
}

// settled waits until every pod that a Deployment wants is there and ready, and no other.
func (w *world) settled(ctx context.Context, patience time.Duration) error {
	return until(ctx, patience, func(ctx context.Context) error {
		var list struct {
			Items []struct {
				Metadata struct{ Name string }
				Spec     struct{ Replicas int }
				Status   struct{ Replicas, ReadyReplicas, UpdatedReplicas, AvailableReplicas int }
			}
		}
		if err := w.read(ctx, &list, "get", "deployments"); err != nil {
			return err
		}
		for _, d := range list.Items {
			if s := d.Status; s.Replicas != d.Spec.Replicas || s.ReadyReplicas != d.Spec.Replicas || s.UpdatedReplicas != d.Spec.Replicas || s.AvailableReplicas != d.Spec.Replicas {
				return fmt.Errorf("%s: want %d pods, status %+v", d.Metadata.Name, d.Spec.Replicas, s)
			}
		}
		return w.gone(ctx)
	})
}

// gone is an error while a pod is on its way out.
func (w *world) gone(ctx context.Context) error {
	all, err := w.pods(ctx, "")
	for _, p := range all {
		if err == nil && p.Metadata.DeletionTimestamp != "" {
			err = fmt.Errorf("%s is still ending", p.Metadata.Name)
		}
	}
	return err
}

// read gives what kubectl shows as JSON.
func (w *world) read(ctx context.Context, into any, args ...string) error {
	out, err := w.k(ctx, append(args, "-o", "json")...)
	if err != nil {
		return err
	}
	return json.Unmarshal([]byte(out), into)
}

// pod is what is asked of one.
type pod struct {
	Metadata struct{ Name, UID, DeletionTimestamp string }
	Status   struct {
		Conditions        []struct{ Type, Status string }
		ContainerStatuses []struct {
			ContainerID  string
			RestartCount int
		}
	}
}

// is tells whether a condition holds.
func (p pod) is(condition string) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == condition {
			return c.Status == "True"
		}
	}
	return false
}

// pods are those of a program; of all Deployments with "".
func (w *world) pods(ctx context.Context, program string) ([]pod, error) {
	selector := "app.kubernetes.io/part-of=errand,!batch.kubernetes.io/job-name"
	if program != "" {
		selector += ",app.kubernetes.io/name=" + program
	}
	var list struct{ Items []pod }
	err := w.read(ctx, &list, "get", "pods", "-l", selector)
	return list.Items, err
}

// one is the only pod of a program.
func (w *world) one(ctx context.Context, program string) (pod, error) {
	all, err := w.pods(ctx, program)
	if err == nil && len(all) != 1 {
		err = fmt.Errorf("%s has %d pods, want 1", program, len(all))
	}
	if err != nil {
		return pod{}, err
	}
	return all[0], nil
}

// page is one of a pod's pages, asked by way of the API server as somebody on call would.
func (w *world) page(ctx context.Context, pod, path string) (status int, body string, err error) {
	cert, err := tls.LoadX509KeyPair(w.pki("admin.crt"), w.pki("admin.key"))
	if err != nil {
		return 0, "", err
	}
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true,
		TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{cert}, RootCAs: w.ca.pool()}}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, w.url()+"/api/v1/namespaces/"+namespace+"/pods/"+pod+":8080/proxy"+path, nil)
	if err != nil {
		return 0, "", err
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return response.StatusCode, strings.TrimSpace(string(text)), err
}

// control asks the sandbox, or tells it something.
func control(ctx context.Context, method, path, body string, into any) error {
	request, err := http.NewRequestWithContext(ctx, method, sandbox+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	client := &http.Client{Timeout: 30 * time.Second}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("sandbox: %s %s: %s: %s", method, path, response.Status, bytes.TrimSpace(text))
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(text, into)
}

// latency is how long every upstream call takes from now on.
func latency(ctx context.Context, d time.Duration) error {
	return control(ctx, http.MethodPut, "/settings", fmt.Sprintf(`{"latency":%q}`, d), nil)
}

// fault makes calls go wrong until the returned function is called.
func fault(ctx context.Context, rule string) (clear func(context.Context) error, err error) {
	return func(ctx context.Context) error { return control(ctx, http.MethodDelete, "/faults", "", nil) },
		control(ctx, http.MethodPost, "/faults", rule, nil)
}

// done is what the upstreams really did.
type done struct {
	Enroll struct {
		Accepted   int
		TwiceCount int            `json:"twice_count"`
		Twice      map[string]int // order numbers
	}
	Mail struct {
		Accepted, Recipients, Largest int
		TwiceCount                    int `json:"twice_count"`
	}
}

// oracle is an error when anything was done twice.
func oracle(ctx context.Context) (done, error) {
	var d done
	err := control(ctx, http.MethodGet, "/oracle?summary=1", "", &d)
	if err == nil && d.Enroll.TwiceCount+d.Mail.TwiceCount > 0 {
		err = fmt.Errorf("done twice: %d enrollments (%v), %d mails", d.Enroll.TwiceCount, d.Enroll.Twice, d.Mail.TwiceCount)
	}
	return d, err
}

// connect makes a connection for everybody who asks NATS something, each with its own rights.
func (w *world) connect(ctx context.Context) error {
	for _, who := range []struct {
		js                *jetstream.JetStream
		user, secret, key string
	}{
		{&w.producer, "producer", "nats-people", "producer"},
		{&w.subscriber, "subscriber", "nats-people", "subscriber"},
		{&w.provisioner, "provisioner", "errand-provision", "nats-password"},
	} {
		encoded, err := w.k(ctx, "get", "secret", who.secret, "-o", "jsonpath={.data."+who.key+"}")
		if err != nil {
			return err
		}
		password, err := base64.StdEncoding.DecodeString(encoded)
		if err != nil {
			return err
		}
		nc, err := nats.Connect(broker, nats.UserInfo(who.user, string(password)), nats.CustomInboxPrefix("_INBOX_"+who.user), nats.MaxReconnects(-1))
		if err != nil {
			return err
		}
		if *who.js, err = jetstream.New(nc); err != nil {
			return err
		}
	}
	return nil
}

// events counts what was told under a filter, by subject.
func (w *world) events(ctx context.Context, stream, filter string) (map[string]uint64, error) {
	s, err := w.subscriber.Stream(ctx, stream)
	if err != nil {
		return nil, err
	}
	info, err := s.Info(ctx, jetstream.WithSubjectFilter(filter))
	if err != nil {
		return nil, err
	}
	return info.State.Subjects, nil
}

// queue is what a durable consumer of requests says of itself.
type queue struct {
	waiting, taken uint64
	repeated       uint64 // deliveries beyond the first of each request
}

var queues = map[string]string{"mandate-enroll": "MANDATE_REQUESTS", "mail-send": "MAIL_REQUESTS"}

func (w *world) queue(ctx context.Context, name string) (queue, error) {
	c, err := w.provisioner.Consumer(ctx, queues[name], name)
	if err != nil {
		return queue{}, err
	}
	i := c.CachedInfo()
	// No other consumer's requests are published here, so each request is one of its stream.
	return queue{waiting: i.NumPending, taken: uint64(max(0, i.NumAckPending)), repeated: i.Delivered.Consumer - i.Delivered.Stream}, nil
}

// repeated counts the deliveries beyond the first of each request, so far.
func (w *world) repeated(ctx context.Context) (n uint64, err error) {
	for name := range queues {
		q, err := w.queue(ctx, name)
		if err != nil {
			return 0, err
		}
		n += q.repeated
	}
	return n, nil
}

// batch are requests that were published together; their ids begin with its name.
type batch struct {
	name           string
	enrolls, mails int
}

// enroll publishes one enrollment of the batch.
func (w *world) enroll(ctx context.Context, b *batch) error {
	b.enrolls++
	id := fmt.Sprintf("%s-e%d", b.name, b.enrolls)
	return w.publish(ctx, messages.Enroll.Requested(), id, map[string]any{"request_id": id, "order_number": id, "amount": "100.50", "payer_id_type": 1,
		"payer_id": "900101011234", "payer_name": "Ann Tester", "payer_email": "ann@example.com", "payer_telephone_number": "0123456789",
		"frequency_mode": "MT", "application_reason": "Membership"})
}

// mail publishes one message of the batch, to so many, whom no other message goes to: whose delivery one is must be sure.
func (w *world) mail(ctx context.Context, b *batch, recipients int) error {
	b.mails++
	id := fmt.Sprintf("%s-m%d", b.name, b.mails)
	to := make([]string, recipients)
	for n := range to {
		to[n] = fmt.Sprintf("r%d.%s@example.com", n, id)
	}
	return w.publish(ctx, messages.Send.Requested(), id, map[string]any{"request_id": id, "to": to, "subject": id, "content": "See you at noon."})
}

func (w *world) publish(ctx context.Context, subject, id string, body any) error {
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	_, err = w.producer.Publish(ctx, subject, data, jetstream.WithMsgID(id))
	return err
}

// load publishes both kinds so many a second until ctx ends, or there are limit of each.
func (w *world) load(ctx context.Context, b *batch, persecond, limit int) error {
	tick := time.NewTicker(time.Second / time.Duration(persecond))
	defer tick.Stop()
	for b.enrolls < limit {
		// What was begun is finished: a request that is published must be counted.
		whole := context.WithoutCancel(ctx)
		if err := cmp.Or(w.enroll(whole, b), w.mail(whole, b, 2)); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
	return nil
}

// outcomes waits until every request of a batch has one outcome, and gives how many have each.
func (w *world) outcomes(ctx context.Context, b *batch, patience time.Duration) (map[string]int, error) {
	var told map[string]int
	err := until(ctx, patience, func(ctx context.Context) error {
		told = map[string]int{}
		requests := map[string]int{}
		for op, stream := range map[messages.Operation]string{messages.Enroll: "MANDATE_EVENTS", messages.Send: "MAIL_EVENTS"} {
			events, err := w.events(ctx, stream, op.Filter("*"))
			if err != nil {
				return err
			}
			for subject, n := range events {
				id := subject[strings.LastIndexByte(subject, '.')+1:]
				if state := messages.StateOf(subject); state.Final(op) && state != messages.Resolved && strings.HasPrefix(id, b.name+"-") {
					told[string(state)] += int(n)
					requests[id] += int(n)
				}
			}
		}
		for id, n := range requests {
			if n != 1 {
				return final{fmt.Errorf("%s has %d outcomes", id, n)}
			}
		}
		if len(requests) != b.enrolls+b.mails {
			return fmt.Errorf("%d requests, %d have an outcome: %v", b.enrolls+b.mails, len(requests), told)
		}
		return nil
	})
	return told, err
}

// allWell waits until every request of a batch has ended well, and looks whether anything was done twice.
func (w *world) allWell(ctx context.Context, b *batch, patience time.Duration) error {
	told, err := w.outcomes(ctx, b, patience)
	if err != nil {
		return err
	}
	if told["succeeded"] != b.enrolls || told["accepted"] != b.mails {
		return fmt.Errorf("not all of %d enrollments and %d mails went well: %v", b.enrolls, b.mails, told)
	}
	_, err = oracle(ctx)
	return err
}

// replicas is how many pods a program is to have.
func (w *world) replicas(ctx context.Context, program string) (n int, err error) {
	text, err := w.k(ctx, "get", "deployment", program, "-o", "jsonpath={.spec.replicas}")
	if err == nil {
		_, err = fmt.Sscan(text, &n)
	}
	return n, err
}

// pause waits for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}
