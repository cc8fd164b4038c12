package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"

	"errand/internal/wire"
	"errand/pkg/messages"
)

// asyncAPI is the AsyncAPI document as YAML. errand, the application, receives requests and sends events and dead letters.
func asyncAPI(w descriptions) ([]byte, error) {
	var channels, operations, messagesOf object
	add := func(c channel) {
		channels = append(channels, member{c.name, c.object()})
		operations = append(operations, member{c.action + "." + c.name, object{
			{"action", c.action}, {"channel", ref("#/channels/" + c.name)}, {"summary", c.about},
		}})
		messagesOf = append(messagesOf, member{c.name, c.message})
	}
	for _, r := range requests {
		subject := r.operation.Requested()
		add(channel{name: subject, action: "receive", about: w.about[subject], message: requestMessage(subject, w)})
	}
	for _, e := range events {
		add(channel{name: name(e), action: "send", about: w.about[name(e)], parameters: parametersOf(e), message: eventMessage(e)})
	}
	for _, r := range requests {
		subject := r.operation.Requested()
		about := "The original message of a `" + subject + "` that ended `failed` or `uncertain`, or that could not be read."
		add(channel{name: "dead." + subject, action: "send", about: about, message: object{
			{"name", "dead." + subject}, {"title", "dead." + subject}, {"summary", about},
			{"headers", ref("#/components/schemas/deadLetterHeaders")},
		}})
	}
	text, err := wire.Marshal(object{
		{"asyncapi", "3.0.0"},
		{"info", object{
			{"title", "errand"}, {"version", fmt.Sprintf("%d.0.0", messages.Version)},
			{"description", "Requests to enroll a payer, to list transactions, to send mail and to read the mail account, " +
				"and what becomes of each. " +
				"`version` is the version of what requests may say. Explained in [use/reference.md](use/reference.md)."},
		}},
		{"defaultContentType", "application/json"},
		{"servers", object{{"nats", object{{"host", "127.0.0.1:4222"}, {"protocol", "nats"},
			{"description", "NATS with JetStream: publish through JetStream, and read with a consumer."}}}}},
		{"channels", channels},
		{"operations", operations},
		{"components", object{
			{"messages", messagesOf},
			{"schemas", object{{"requestHeaders", requestHeaders}, {"eventHeaders", eventHeaders}, {"deadLetterHeaders", deadLetterHeaders}}},
			{"parameters", object{
				{"request_id", object{{"description", "The request id: 1 to 64 letters, digits, _ or -."}}},
				{"batch", object{{"description", "The number of the batch, from 1."}}},
				{"status", object{{"description",
					"The status_description of the record: lower case, _ in place of anything but letters and digits; " +
						"status_<code> where it has no description, unknown where it has no status."}}},
			}},
		}},
	})
	if err != nil {
		return nil, err
	}
	return asYAML(text)
}

// channel is one subject and its message.
type channel struct {
	name       string // the subject without ids
	action     string
	about      string
	parameters []string
	message    object
}

func (c channel) object() object {
	address, parameters := c.name, object{}
	for _, p := range c.parameters {
		address += ".{" + p + "}"
		parameters = append(parameters, member{p, ref("#/components/parameters/" + p)})
	}
	o := object{{"address", address}, {"messages", object{{c.name, ref("#/components/messages/" + c.name)}}}}
	if len(parameters) > 0 {
		o = append(o, member{"parameters", parameters})
	}
	return o
}

func ref(to string) object { return object{{"$ref", to}} }

// parametersOf are what follows the type in an event's subject.
func parametersOf(e messages.Event) []string {
	if name(e) != e.Type() {
		return []string{"status", "request_id"}
	}
	return []string{"request_id", "batch"}[:strings.Count(e.Subject(), ".")-strings.Count(e.Type(), ".")]
}

// payload is the schema of a subject, which the document refers to by its file.
func payload(subject string) object {
	return object{{"schemaFormat", "application/schema+json;version=draft-2020-12"}, {"schema", ref("./schemas/" + subject + ".json")}}
}

func requestMessage(subject string, w descriptions) object {
	return object{
		{"name", subject}, {"title", subject}, {"summary", w.about[subject]}, {"headers", ref("#/components/schemas/requestHeaders")},
		{"payload", payload(subject)},
		{"examples", []any{object{{"payload", json.RawMessage(w.sample[subject])}}}},
	}
}

func eventMessage(e messages.Event) object {
	headers := map[string][]string{}
	e.Headers(headers, source(e), e.Subject()+".41")
	if b, ok := e.Body.(*messages.DeliveryBody); ok {
		headers["Errand-Recipient"] = []string{b.Recipient}
	}
	single := map[string]string{}
	for name, values := range headers {
		single[name] = values[0]
	}
	body, _ := e.Encode() // its schema has it too, which reports the error
	ceType := object{{"const", e.Type()}}
	if name(e) != e.Type() {
		ceType = object{{"type", "string"}, {"pattern", "^" + regexp.QuoteMeta(string(e.Operation)) + `\.[a-z0-9_]+$`}}
	}
	return object{
		{"name", name(e)}, {"title", name(e)},
		{"headers", object{{"allOf", []any{
			ref("#/components/schemas/eventHeaders"), object{{"properties", object{{"ce-type", ceType}}}},
		}}}},
		{"payload", payload(name(e))},
		{"examples", []any{object{{"headers", single}, {"payload", json.RawMessage(body)}}}},
	}
}

// source names the program that publishes an event.
func source(e messages.Event) string {
	switch e.Operation {
	case messages.Enroll, messages.Transactions:
		if e.State == messages.Marked {
			return "/errand/transaction-poller"
		}
		return "/errand/mandate-consumer"
	case messages.Application, messages.Deduction:
		return "/errand/transaction-poller"
	case messages.Callback:
		return "/errand/callback-receiver"
	case messages.Delivery, messages.Log:
		return "/errand/log-poller"
	}
	return "/errand/mail-consumer"
}

var (
	trace = object{
		{"traceparent", header("The W3C trace context of the request.")},
		{"tracestate", header("The same.")},
	}
	requestHeaders = object{{"type", "object"}, {"properties", append(object{
		{"Nats-Msg-Id", header("The request id, if the body has none. JetStream's duplicate window goes by it.")},
		{"Errand-Reopened", header("Of a dead letter that a person runs again: the sequence of the event that says so.")},
		{"Errand-Lane", header("Of a request that waits for its not_before: its lane.")},
		{"Errand-Scheduled", header("Of a request whose not_before has come: the sequence of its deferred event.")},
	}, trace...)}}
	eventHeaders = object{
		{"type", "object"},
		{"properties", append(object{
			{"ce-specversion", object{{"const", "1.0"}}},
			{"ce-id", header("The same whenever the same event is published again.")},
			{"ce-source", header("The program. Deliveries have no ce-specversion, ce-source, ce-subject and ce-time.")},
			{"ce-type", header("The subject without the id.")},
			{"ce-subject", header("The request id.")},
			{"ce-time", object{{"type", "string"}, {"format", "date-time"}, {"description", "When it happened."}}},
			{"content-type", object{{"const", "application/json"}}},
			{"Errand-Recipient", header("Of a delivery: the batch and the recipient.")},
		}, trace...)},
		{"required", []string{"ce-id", "ce-type", "content-type"}},
	}
	deadLetterHeaders = object{
		{"type", "object"},
		{"properties", object{
			{"Errand-Msg-Id", header("The original Nats-Msg-Id.")},
			{"Errand-Reason", header("The reason.")},
			{"Errand-Message", header("Why, for people.")},
			{"Errand-Request-Id", header("The id under which it ended.")},
			{"Errand-Stream", header("The stream where it was.")},
			{"Errand-Sequence", header("Its sequence there.")},
			{"Errand-Deliveries", header("How often it was delivered.")},
			{"Errand-At", object{{"type", "string"}, {"format", "date-time"}, {"description", "When it was stored."}}},
		}},
		{"required", []string{"Errand-Reason", "Errand-Stream", "Errand-Sequence", "Errand-Deliveries", "Errand-At"}},
	}
)

func header(about string) object { return object{{"type", "string"}, {"description", about}} }

// asYAML writes JSON as YAML in the usual style.
func asYAML(text []byte) ([]byte, error) {
	var root yaml.Node
	if err := yaml.Unmarshal(text, &root); err != nil {
		return nil, err
	}
	restyle(&root)
	var b bytes.Buffer
	b.WriteString("# Made by go generate ./docs/schemas.\n")
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	err := errors.Join(enc.Encode(&root), enc.Close())
	return b.Bytes(), err
}

// restyle removes the brackets and quotes of JSON where YAML needs no brackets or quotes.
func restyle(n *yaml.Node) {
	n.Style = 0
	for _, child := range n.Content {
		restyle(child)
	}
}
