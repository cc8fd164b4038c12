package schema

import (
	"encoding/json"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"

	"errand/internal/wire"
	"errand/pkg/messages"
)

// mutator makes bodies that are almost valid.
type mutator struct {
	*rand.Rand
	samples [][]pair
}

// pair is a member of an object; a name may come twice.
type pair struct{ name, value string }

const (
	fullEnroll = `{"request_id":"a-1","on_unknown":"retry","give_up_at":"2026-01-02T15:04:05Z","portal_key":"k","order_number":"DD 1",
		"amount":"100.50","payer_id_type":1,"payer_id":"007",
		"payer_name":"Ann é漢","payer_email":"ann@example.com","payer_telephone_number":60190000000,"payer_bank_code":"B1",
		"payer_bank_code_hashed":"h","frequency_mode":"MT","max_frequency":9,
		"application_reason":"Fee","effective_date":"2026-02-01","expiry_date":"2027-02-01","metadata":"{}\n",
		"return_url":"https://a.example/?b=c","success_url":"http://a.example",
		"failed_url":"https://a.example:8443","maintenance_url":"https://a.example/m","termination_url":"https://a.example/t",
		"link_expired_at":"2026-01-02 15:04:05","platform_id":"p","checksum":"c"}`
	leastEnroll = `{"order_number":"DD1","amount":5,"payer_id_type":"1","payer_id":7,"payer_name":"A","payer_email":"a@b",
		"payer_telephone_number":"0","frequency_mode":"MT","application_reason":"F"}`
	fullSend = `{"request_id":"m-1","on_unknown":"report","give_up_at":"2026-01-02T15:04:05+08:00","from":"Shop <shop@example.com>",
		"to":["ann@example.com","Bob <bob@example.com>"],"reply_to":"a@b",
		"unsubscribe_link":"mailto:a@b","subject":"Hello","content":"a\nb","as_html":1,"headers":{"X-A":"1","List-Id":"l"}}`
	objectSend = `{"to_object":{"bucket":"lists","name":"news","digest":"SHA-256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU="},
		"subject":"Hello","content":"a"}`
	leastSend = `{"to":"a@b, c@d","subject":"Hello","content":"a"}`
	fullList  = `{"request_id":"q-1","order_number":"DD1","status":"3","exchange_reference_number":"E1","payer_email":"a@b","max_pages":2}`
)

func newMutator(op messages.Operation) *mutator {
	m := &mutator{Rand: rand.New(rand.NewPCG(1, uint64(len(op))))}
	for _, sample := range map[messages.Operation][]string{
		messages.Enroll: {fullEnroll, leastEnroll}, messages.Transactions: {fullList, `{"status":3}`, `{}`},
		messages.Send: {fullSend, objectSend, leastSend}, messages.Account: {`{"request_id":"u-1"}`, `{}`},
	}[op] {
		m.samples = append(m.samples, pairsOf(sample))
	}
	return m
}

// pairsOf are the members of an object, in order.
func pairsOf(object string) (pairs []pair) {
	in := json.NewDecoder(strings.NewReader(object))
	_, _ = in.Token()
	for in.More() {
		name, _ := in.Token()
		var value json.RawMessage
		if err := in.Decode(&value); err != nil {
			return pairs
		}
		pairs = append(pairs, pair{name.(string), string(value)})
	}
	return pairs
}

// each yields every strange value in every place, one at a time.
func (m *mutator) each(yield func([]byte) bool) {
	for _, sample := range m.samples {
		for i, p := range sample {
			for value := range strange(p.name, p.value) {
				pairs := slices.Clone(sample)
				pairs[i].value = value
				if !yield([]byte(join(pairs))) {
					return
				}
			}
		}
	}
}

// strange are values in place of one of a member: others, longer ones, ones with another character, and
// the same within it if it is an object.
func strange(name, value string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, other := range values {
			if !yield(other) {
				return
			}
		}
		var s string
		if json.Unmarshal([]byte(value), &s) == nil {
			for _, text := range strangeTexts(name, s) {
				quoted, _ := json.Marshal(text)
				if !yield(string(quoted)) {
					return
				}
			}
		}
		if value[0] != '{' {
			return
		}
		pairs := pairsOf(value)
		for i := range pairs {
			for other := range strange(pairs[i].name, pairs[i].value) {
				changed := slices.Clone(pairs)
				changed[i].value = other
				if !yield(join(changed)) {
					return
				}
			}
		}
		for _, most := range []int{wire.MaxHeaders, wire.MaxHeaders + 1} {
			if !yield(join(append(slices.Clip(pairs), many[:most-len(pairs)]...))) {
				return
			}
		}
		for _, name := range headerNames {
			for _, spelling := range []string{name, strings.ToLower(name), strings.ToUpper(name), name + "s"} {
				if !yield(join(append(slices.Clip(pairs), pair{spelling, `"1"`}))) {
					return
				}
			}
		}
	}
}

func strangeTexts(name, s string) (all []string) {
	all = append(all, numbers...)
	for _, o := range odd {
		all = append(all, o+s, s+o)
	}
	for _, length := range lengthsOf(name) {
		if short := length - len([]rune(s)); short > 0 {
			all = append(all, s+strings.Repeat("1", short), strings.Repeat("é", short)+s)
		}
	}
	return all
}

// lengthsOf are the limits of a field or of others, and one more.
func lengthsOf(name string) []int {
	switch name {
	case "metadata":
		return []int{wire.MaxMetadata, wire.MaxMetadata + 1}
	case "X-A":
		return []int{wire.MaxHeaderValue, wire.MaxHeaderValue + 1}
	}
	return lengths
}

// many are headers.
var many = func() (all []pair) {
	for i := range wire.MaxHeaders {
		all = append(all, pair{fmt.Sprintf("X-%d", i), `"1"`})
	}
	return all
}()

// body is a sample with up to three changes.
func (m *mutator) body() []byte {
	if m.IntN(50) == 0 {
		return []byte(m.pick(values))
	}
	pairs := append([]pair(nil), m.samples[m.IntN(len(m.samples))]...)
	for range m.IntN(4) {
		pairs = m.change(pairs, unknown)
	}
	return []byte(join(pairs))
}

func join(pairs []pair) string {
	var b strings.Builder
	for i, p := range pairs {
		name, _ := json.Marshal(p.name)
		fmt.Fprintf(&b, "%.*s%s:%s", min(i, 1), ",", name, p.value)
	}
	return "{" + b.String() + "}"
}

// change changes one member of an object; names are those for new ones.
func (m *mutator) change(pairs []pair, names []string) []pair {
	if len(pairs) == 0 || m.IntN(12) == 0 {
		return append(pairs, pair{m.pick(names), m.pick(values)})
	}
	i := m.IntN(len(pairs))
	p := &pairs[i]
	switch m.IntN(12) {
	case 0:
		return append(pairs[:i:i], pairs[i+1:]...)
	case 1:
		return append(pairs, pair{p.name, m.pick(values)})
	case 2:
		p.value = pairs[m.IntN(len(pairs))].value
	case 3:
		p.value = "[" + p.value + "," + m.pick(values) + "]"
	case 4, 5:
		p.value = m.pick(empties)
	case 6, 7:
		p.value = m.pick(values)
	default:
		p.value = m.within(p.value)
	}
	return pairs
}

// within changes something in a value.
func (m *mutator) within(value string) string {
	switch value[0] {
	case '"':
		return m.text(value)
	case '{':
		pairs := pairsOf(value)
		if m.IntN(20) == 0 {
			pairs = append(pairs, many...)
		}
		return join(m.change(pairs, append(headerNames, unknown...)))
	case '[':
		var elements []json.RawMessage
		if json.Unmarshal([]byte(value), &elements) != nil || len(elements) == 0 {
			return value
		}
		i := m.IntN(len(elements))
		elements[i] = json.RawMessage(m.within(string(elements[i])))
		if text, err := json.Marshal(elements); err == nil {
			return string(text)
		}
		return value
	}
	if m.IntN(2) == 0 {
		return `"` + value + `"`
	}
	return m.pick(numbers)
}

// text changes a string: a strange character somewhere, another length, a number.
func (m *mutator) text(value string) string {
	var s string
	if json.Unmarshal([]byte(value), &s) != nil {
		return value
	}
	switch m.IntN(6) {
	case 0:
		if length := lengths[m.IntN(len(lengths))]; s != "" {
			letter := s[len(s)-1:]
			s += strings.Repeat(letter, max(0, length-len([]rune(s))))
		}
	case 1:
		return `"` + m.pick(numbers) + `"`
	case 2:
		s = string([]rune(s)[:m.IntN(len([]rune(s))+1)])
	default:
		runes := []rune(s)
		at := m.IntN(len(runes) + 1)
		s = string(runes[:at]) + m.pick(odd) + string(runes[at:])
	}
	text, _ := json.Marshal(s)
	return string(text)
}

func (m *mutator) pick(from []string) string { return from[m.IntN(len(from))] }
