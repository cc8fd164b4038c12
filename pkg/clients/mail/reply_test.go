package mail

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"errand/pkg/messages"
)

func TestReplyCodesAreFound(t *testing.T) {
	for text, want := range map[string]messages.SMTP{
		"":                   {},
		"250 2.0.0 OK abc":   {Code: 250, Enhanced: "2.0.0"},
		"250 OK":             {Code: 250},
		"250":                {Code: 250},
		"250-2.0.0 first":    {Code: 250, Enhanced: "2.0.0"},
		"550-5.1.1 no\r\n..": {Code: 550, Enhanced: "5.1.1"},
		"451 4.7.1 Greylisted, please try again later": {Code: 451, Enhanced: "4.7.1"},
		"550 #5.1.0 Address rejected.":                 {Code: 550, Enhanced: "5.1.0"},
		"554 5.7.1: <a@b.test>: denied":                {Code: 554, Enhanced: "5.7.1"},
		"550 Mailbox unavailable [5.1.1]":              {Code: 550, Enhanced: "5.1.1"},
		"550 refused, you are 4.1.1.7 or 5.1.1.7":      {Code: 550},
		"421 4.4.2 from 5.1.1.7, 5.1.1 x":              {Code: 421, Enhanced: "4.4.2"},
		"host mx.test[192.0.2.1] said: 550 5.1.1 <x@y.test>: unknown (in reply to RCPT TO command)": {Code: 550, Enhanced: "5.1.1"},
		`upstream:"421 4.3.2 closing"`:       {Code: 421, Enhanced: "4.3.2"},
		"refused (452 4.2.2 mailbox full)":   {Code: 452, Enhanced: "4.2.2"},
		"5.1.1 user unknown":                 {Enhanced: "5.1.1"},
		"connection timed out after 450 s":   {},
		"192.0.2.1 refused":                  {},
		"2500 OK":                            {},
		"199 odd":                            {},
		"354 go ahead":                       {},
		"290 odd":                            {},
		"550":                                {Code: 550},
		"550 5.1":                            {Code: 550},
		"550 5.1.1000 x":                     {Code: 550},
		"550 4.2.0 disagrees with its class": {Code: 550, Enhanced: "4.2.0"},
	} {
		if diff := cmp.Diff(want, (Entry{Response: text}).Reply()); diff != "" {
			t.Errorf("%q (-want +got):\n%s", text, diff)
		}
	}
}

func FuzzAnyReplyIsRead(f *testing.F) {
	f.Add("550 5.1.1 no")
	f.Fuzz(func(t *testing.T, text string) {
		reply := Entry{Response: text}.Reply()
		if !strings.Contains(text, reply.Enhanced) || reply.Code < 0 || reply.Code > 559 {
			t.Errorf("%q: %+v", text, reply)
		}
	})
}
