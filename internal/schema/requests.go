package schema

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"errand/pkg/messages"
)

type request struct {
	operation messages.Operation
	of        reflect.Type
	onUnknown string // the rule of on_unknown
	defaults  map[string]any
}

var requests = []request{
	{messages.Enroll, reflect.TypeFor[messages.EnrollRequest](), "reportOrRetry",
		map[string]any{"on_unknown": messages.OnUnknownReport, "max_frequency": 9}},
	{messages.Transactions, reflect.TypeFor[messages.TransactionsRequest](), "", nil},
	{messages.Send, reflect.TypeFor[messages.SendRequest](), "reportOrResend",
		map[string]any{"on_unknown": messages.OnUnknownReport, "as_html": 0}},
	{messages.Account, reflect.TypeFor[messages.AccountRequest](), "", nil},
}

// fieldsWith lists by rule the fields of all requests but on_unknown. Decoders of pkg/messages check by code, from which
// no schema follows; TestSchemasAcceptAndRefuseWhatDecodersDo holds these rules to them.
var fieldsWith = map[string]string{
	"line": "portal_key payer_name payer_bank_code payer_bank_code_hashed frequency_mode application_reason platform_id checksum " +
		"exchange_reference_number subject",
	"url":       "return_url success_url failed_url maintenance_url termination_url",
	"email":     "payer_email",
	"mailbox":   "from reply_to",
	"digits":    "payer_id payer_telephone_number",
	"positive":  "max_frequency max_pages",
	"date":      "effective_date expiry_date",
	"requestID": "request_id", "time": "give_up_at", "orderNumber": "order_number", "amount": "amount", "whole": "payer_id_type",
	"metadata": "metadata", "dateTime": "link_expired_at", "status": "status", "unsubscribe": "unsubscribe_link", "text": "content",
	"flag": "as_html", "headers": "headers", "recipients": "to", "listObject": "to_object",
}

func (r request) rule(field string) string {
	if field == "on_unknown" {
		return r.onUnknown
	}
	for rule, fields := range fieldsWith {
		if slices.Contains(strings.Fields(fields), field) {
			return rule
		}
	}
	return ""
}

// oneList asks for to or to_object, and not for both. It is written with if, which generators of types ignore.
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
		rule := r.rule(field.name)
		if rule == "" {
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
