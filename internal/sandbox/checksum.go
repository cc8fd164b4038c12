package sandbox

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// checksum is the HMAC-SHA256, in lower-case hex, over the trimmed values joined by "|", in the order of their field names;
// a missing one is empty. Not shown by the upstream; assumed, see docs/why/adr/0004-sandbox-assumptions.md.
func checksum(secret string, values ...string) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(strings.Join(values, "|")))
	return hex.EncodeToString(mac.Sum(nil))
}

// checksum is the expected value of the field checksum, over the texts as they were sent: 100 and 100.00 differ.
func (v values) checksum(secret string) string {
	return checksum(secret, v["amount"], v["application_reason"], v["frequency_mode"], v["order_number"], v["payer_email"],
		v["payer_id"], v["payer_id_type"], v["payer_name"], v["payer_telephone_number"])
}
