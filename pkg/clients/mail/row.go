package mail

import (
	"bytes"
	"encoding/json"
	"slices"

	"errand/pkg/clients/internal/scan"
)

// cutRows takes the rows out of a page, which encoding/json would go over twice as often; the rest is as if there were none. Of what
// encoding/json may read otherwise, such as a key in another spelling, nothing is taken. The rows are parts of page.
func cutRows(page []byte) (rest []byte, rows []json.RawMessage) {
	if !json.Valid(page) {
		return page, nil
	}
	var list []byte // the last one of that name counts
	data := func(key, value []byte) bool {
		if string(key) == "data" {
			list = value
		}
		return string(key) == "data"
	}
	if !scan.Object(bytes.TrimSpace(page), data) || list == nil || !scan.Object(list, data) || list[0] != '[' {
		return page, nil
	}
	rows = scan.Elements(list, len(list)/usualRow+1)
	from := cap(page) - cap(list)
	return slices.Concat(page[:from], []byte("[]"), page[from+len(list):]), rows
}
