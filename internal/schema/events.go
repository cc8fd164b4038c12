package schema

import (
	"encoding/json"
	"fmt"
	"reflect"

	"errand/pkg/messages"
)

// eventSchema is open: readers ignore members that they do not know.
func eventSchema(e messages.Event, w descriptions) (object, error) {
	body, err := structSchema(reflect.TypeOf(e.Body).Elem(), name(e), "", w)
	if err != nil {
		return nil, err
	}
	example, err := e.Encode()
	if err != nil {
		return nil, err
	}
	return append(body, member{"examples", []any{json.RawMessage(example)}}), nil
}

// structSchema is a struct within the body of a subject; prefix is its place there.
func structSchema(of reflect.Type, subject, prefix string, w descriptions) (object, error) {
	var properties object
	var required []string
	for _, f := range fieldsOf(of) {
		about, err := w.of(subject, prefix+f.name)
		if err != nil {
			return nil, err
		}
		property, err := typeSchema(f.of, subject, prefix+f.name, w)
		if err != nil {
			return nil, err
		}
		if about != "" {
			property = append(object{{"description", about}}, property...)
		}
		properties = append(properties, member{f.name, property})
		if !f.optional {
			required = append(required, f.name)
		}
	}
	return object{{"type", "object"}, {"properties", properties}, {"required", required}}, nil
}

func typeSchema(of reflect.Type, subject, path string, w descriptions) (object, error) {
	switch of {
	case reflect.TypeFor[messages.Time]():
		return object{{"type", "string"}, {"format", "date-time"}}, nil
	case reflect.TypeFor[json.RawMessage]():
		return object{{"type", "object"}}, nil
	case reflect.TypeFor[json.Number]():
		return object{{"type", "number"}}, nil
	case reflect.TypeFor[[]byte]():
		return object{{"type", "string"}, {"contentEncoding", "base64"}}, nil
	case reflect.TypeFor[[]json.RawMessage]():
		return object{{"type", "array"}}, nil // of whatever the service sent
	case reflect.TypeFor[messages.Reason]():
		return object{{"type", "string"}, {"enum", messages.Reasons}}, nil
	case reflect.TypeFor[messages.State](), reflect.TypeFor[messages.Confidence](), reflect.TypeFor[messages.Known](),
		reflect.TypeFor[messages.CallbackEncoding](), reflect.TypeFor[messages.CallbackChecksum](), reflect.TypeFor[messages.TransactionKind](),
		reflect.TypeFor[messages.TransactionBy]():
		about, err := w.of(subject, path)
		return object{{"type", "string"}, {"enum", codes(about)}}, err
	}
	switch of.Kind() {
	case reflect.Pointer:
		return typeSchema(of.Elem(), subject, path, w)
	case reflect.Struct:
		return structSchema(of, subject, path+".", w)
	case reflect.Slice:
		items, err := typeSchema(of.Elem(), subject, path+"[]", w)
		return object{{"type", "array"}, {"items", items}}, err
	case reflect.Map:
		values, err := typeSchema(of.Elem(), subject, path, w)
		return object{{"type", "object"}, {"additionalProperties", values}}, err
	case reflect.String:
		return object{{"type", "string"}}, nil
	case reflect.Int:
		return object{{"type", "integer"}}, nil
	case reflect.Bool:
		return object{{"type", "boolean"}}, nil
	}
	return nil, fmt.Errorf("%s: %s has the type %s, which has no schema", subject, path, of)
}
