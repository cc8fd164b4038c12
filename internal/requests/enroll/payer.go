package enroll

import (
	"encoding/json"
	"errors"
	"strings"

	"errand/pkg/clients"
	"errand/pkg/clients/mandate"
)

// withoutPayer takes the payer out of what the service says of a call that did not succeed.
func withoutPayer(err error, of mandate.Enrollment) error {
	failed, ok := errors.AsType[*clients.Error](err)
	if !ok {
		return err
	}
	digits := func(raw json.RawMessage) string { return strings.Trim(string(raw), `"`) }
	return failed.Without(of.PayerName, of.PayerEmail, digits(of.PayerID), digits(of.PayerTelephoneNumber),
		of.PayerBankCode, of.PayerBankCodeHashed, of.Metadata)
}
