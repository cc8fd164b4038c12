package e2e

import (
	"errand/internal/bus"
	"errand/internal/programs"
	"errand/pkg/messages"
)

// service is one of the two services and how the tests of the hold use it.
type service struct {
	write, requested, events string // what changes something, and every event about it
	read, asked, answers     string // the read, and the event that answers it
	succeeded, answered      messages.State
	request                  func(id string, more ...string) map[string]any
	program                  func(b *bubble, concurrency int, u *upstream) programs.Program
}

func mandateService() service {
	return service{"enroll", "mandate.enroll.requested", "mandate.enroll.*.*",
		"transactions", "mandate.transactions.requested", "mandate.transactions.listed.*", messages.Succeeded, messages.Listed, enrollment,
		func(b *bubble, concurrency int, u *upstream) programs.Program {
			p := b.mandates()
			p.Concurrency, p.Transport = concurrency, u.transport(b)
			return p
		}}
}

func mailService() service {
	return service{"send", "mail.send.requested", "mail.send.*.*",
		"account", "mail.account.requested", "mail.account.reported.*", messages.Accepted, messages.Reported,
		func(id string, more ...string) map[string]any { return message(id, 1, more...) },
		func(b *bubble, concurrency int, u *upstream) programs.Program {
			p := b.mails()
			p.Concurrency, p.Transport = concurrency, u.transport(b)
			return p
		}}
}

func (s service) eventStream() string   { return s.stream(bus.MandateEvents, bus.MailEvents) }
func (s service) requestStream() string { return s.stream(bus.MandateRequests, bus.MailRequests) }

func (s service) stream(mandate, mail string) string {
	if s.write == "enroll" {
		return mandate
	}
	return mail
}

// operated are the two programs and what the tests of the hold ask of them as processes.
var operated = []struct {
	program, operation, requested, events, succeeded string
	url, path                                        string // a wrong address, as people copy it
	queue                                            bus.Queue
	request                                          func(id string, more ...string) map[string]any
}{
	{"mandate-consumer", "enroll", "mandate.enroll.requested", "mandate.enroll.*.*", "mandate.enroll.succeeded.*", "MANDATE_API_URL", "/v3/mandates", bus.EnrollQueue, enrollment},
	{"mail-consumer", "send", "mail.send.requested", "mail.send.*.*", "mail.send.accepted.*", "MAIL_API_URL", "/api/v0/messages", bus.SendQueue,
		func(id string, more ...string) map[string]any { return message(id, 1, more...) }},
}
