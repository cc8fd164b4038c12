package schema

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"errand/pkg/messages"
)

// request is the body of a request: its Go type, and the rule of each field.
type request struct {
	operation messages.Operation
	of        reflect.Type
	rules     map[string]string // by field: the name of its rule
	defaults  map[string]any
}

var requests = []request{
	{messages.Enroll, reflect.TypeFor[messages.EnrollRequest](), map[string]string{
		"request_id": "requestID", "on_unknown": "retryOrReport", "give_up_at": "time",
		"portal_key": "line", "order_number": "orderNumber", "amount": "amount", "payer_id_type": "whole", "payer_id": "digits",
		"payer_name": "line", "payer_email": "email", "payer_telephone_number": "digits", "payer_bank_code": "line", "payer_bank_code_hashed": "line",
		"frequency_mode": "line", "max_frequency": "positive", "application_reason": "line", "effective_date": "date", "expiry_date": "date",
		"metadata": "metadata", "return_url": "url", "success_url": "url", "failed_url": "url", "maintenance_url": "url", "termination_url": "url",
		"link_expired_at": "dateTime", "platform_id": "line", "checksum": "line",
	}, map[string]any{"on_unknown": messages.OnUnknownRetry, "max_frequency": 9}},
	{messages.Transactions, reflect.TypeFor[messages.TransactionsRequest](), map[string]string{
		"request_id": "requestID", "order_number": "orderNumber", "status": "status", "exchange_reference_number": "line",
		"payer_email": "email", "max_pages": "positive",
	}, nil},
	{messages.Send, reflect.TypeFor[messages.SendRequest](), map[string]string{
		"request_id": "requestID", "on_unknown": "reportOrResend", "give_up_at": "time",
		"from": "mailbox", "reply_to": "mailbox", "unsubscribe_link": "unsubscribe", "subject": "line", "content": "text", "as_html": "flag",
		"headers": "headers", "to": "recipients", "to_object": "listObject",
	}, map[string]any{"on_unknown": messages.OnUnknownReport, "as_html": 0}},
	{messages.Account, reflect.TypeFor[messages.AccountRequest](), map[string]string{"request_id": "requestID"}, nil},
}

// oneList asks for to or to_object, and not for both. It is written with if, since
// programs that make types of a schema pass over that.
var oneList = object{
	{"if", object{{"required", []string{"to"}}, {"properties", object{{"to", object{{"not", empty}}}}}}},
	{"then", object{{"properties", object{{"to_object", empty}}}}},
	{"else", object{{"required", []string{"to_object"}}, {"properties", object{{"to_object", object{{"not", empty}}}}}}},
}

// schema is closed: a member that is not listed is refused.
func (r request) schema(w descriptions) (object, error) {
	defs, subject := definitions{}, r.operation.Requested()
	var properties object
	var required []string
	for _, field := range fieldsOf(r.of) {
		about, err := w.of(subject, field.name)
		if err != nil {
			return nil, err
		}
		rule, found := r.rules[field.name]
		if !found {
			return nil, fmt.Errorf("%s: %s has no rule", subject, field.name)
		}
		property := object{{"description", about}}
		if value, found := r.defaults[field.name]; found {
			property = append(property, member{"default", value})
		}
		if field.optional || rule == "recipients" {
			property = append(property, member{"anyOf", []any{defs.ref(rule), defs.ref("leftOut")}})
		} else {
			required = append(required, field.name)
			property = append(property, defs.ref(rule)...)
		}
		properties = append(properties, member{field.name, property})
	}
	body := object{{"type", "object"}, {"properties", properties}, {"additionalProperties", false}}
	if required != nil {
		body = append(body, member{"required", required})
	}
	if r.operation == messages.Send {
		body = append(body, oneList...)
	}
	if sample := w.sample[subject]; sample != "" {
		body = append(body, member{"examples", []any{json.RawMessage(sample)}})
	}
	return append(body, member{"$defs", defs.sorted()}), nil
}

// field is a member of a struct as JSON has it.
type field struct {
	name     string
	optional bool
	of       reflect.Type
	path     string // the struct and the field, for people
}

// fieldsOf are the members of a struct and of those that are embedded in it.
func fieldsOf(of reflect.Type) (all []field) {
	for f := range of.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-":
		case f.Anonymous:
			all = append(all, fieldsOf(f.Type)...)
		default:
			all = append(all, field{name, strings.Contains(options, "omit"), f.Type, of.Name() + "." + f.Name})
		}
	}
	return all
}
