package sandbox

import (
	"cmp"
	"fmt"
	"time"
)

// Orders in which the sending log is listed; the document promises no order.
const (
	Newest  = "newest"
	Oldest  = "oldest"
	NoOrder = "none"
)

// Settings say how the upstreams behave when nothing is wrong with the network. Help explains each one.
type Settings struct {
	Latency Duration `json:"latency"` // of every call, before its work is done

	ChannelDisabled bool     `json:"channel_disabled"` // the account may not use direct debit: 403
	ListDelay       Duration `json:"list_delay"`       // from a decision to its state in the transaction list
	CallbackWait    Duration `json:"callback_wait"`    // between two tries of a callback
	CallbackCopies  int      `json:"callback_copies"`  // how often each is sent
	CallbackLost    float64  `json:"callback_lost"`    // share of decisions without callbacks, 0 to 1
	CallbackForged  float64  `json:"callback_forged"`  // share of them with a callback before that says the opposite, with a wrong checksum

	Quota     int64 `json:"quota"`     // recipients the account may send to in total
	Suspended bool  `json:"suspended"` // submissions are refused with 403, and the account says so

	LogOrder  string   `json:"log_order"`   // newest, oldest, none
	LogDelay  Duration `json:"log_delay"`   // from acceptance to the first recipient's row
	LogSpread Duration `json:"log_spread"`  // over which a message's rows are spread
	LogCap    int      `json:"log_cap"`     // maximum rows of a page, whatever limit asks for
	LogForms  bool     `json:"log_forms"`   // status and delivered vary between the forms that the documents show
	LogLosses float64  `json:"log_losses"`  // chance that a row is removed before a page is served, 0 to 1
	LogLate   float64  `json:"log_late"`    // chance that a row is added late before a page is served, 0 to 1
	LogLateBy Duration `json:"log_late_by"` // maximum age of such a row

	ShareDeferred float64  `json:"share_deferred"` // share of recipients that get a 4xx reply first and the mail later, 0 to 1
	DeferredFor   Duration `json:"deferred_for"`
	ShareBounced  float64  `json:"share_bounced"` // share of recipients that get a 5xx reply, 0 to 1
}

// DefaultSettings are the settings of a sandbox whose Options have no Settings.
func DefaultSettings() Settings {
	return Settings{
		CallbackWait: Duration(5 * time.Second), CallbackCopies: 1,
		Quota: 10_000_000, LogOrder: Newest, LogDelay: Duration(time.Second), LogCap: 1000, LogLateBy: Duration(time.Minute),
		DeferredFor: Duration(5 * time.Minute),
	}
}

// check returns an error that names the first setting that is wrong.
func (v Settings) check() error {
	share := func(f float64) bool { return f >= 0 && f <= 1 }
	switch {
	case v.CallbackCopies < 0 || v.CallbackCopies > 100:
		return fmt.Errorf("callback_copies is %d, it must be 0 to 100", v.CallbackCopies)
	case !share(v.CallbackLost) || !share(v.CallbackForged):
		return fmt.Errorf("callback_lost and callback_forged must be between 0 and 1")
	case v.LogOrder != Newest && v.LogOrder != Oldest && v.LogOrder != NoOrder:
		return fmt.Errorf("log_order is %q, it must be newest, oldest or none", v.LogOrder)
	case v.LogCap < 1:
		return fmt.Errorf("log_cap is %d, it must be at least 1", v.LogCap)
	case !share(v.LogLosses) || !share(v.LogLate):
		return fmt.Errorf("log_losses and log_late must be between 0 and 1")
	case v.Quota < 0:
		return fmt.Errorf("quota is %d, it must not be negative", v.Quota)
	case !share(v.ShareDeferred) || !share(v.ShareBounced) || v.ShareDeferred+v.ShareBounced > 1:
		return fmt.Errorf("share_deferred, share_bounced and their sum must be between 0 and 1")
	case v.Latency < 0 || v.LogDelay < 0 || v.LogSpread < 0 || v.DeferredFor < 0 || v.ListDelay < 0 || v.CallbackWait < 0 ||
		v.LogLateBy < 0:
		return fmt.Errorf("a duration must not be negative")
	}
	return nil
}

// Settings returns the current settings.
func (s *Sandbox) Settings() Settings { return *s.settings.Load() }

// Set changes the settings: s.Set(func(v *sandbox.Settings) { v.Suspended = true }). Calls under way and mail accepted before
// keep the old settings, but for a lower log_delay.
func (s *Sandbox) Set(change func(*Settings)) error {
	return s.change(func(v *Settings) error {
		change(v)
		return nil
	})
}

// change is Set with a change that may fail; then nothing changes.
func (s *Sandbox) change(change func(*Settings) error) error {
	s.changing.Lock()
	defer s.changing.Unlock()
	settings := s.Settings()
	if err := cmp.Or(change(&settings), settings.check()); err != nil {
		return fmt.Errorf("sandbox: settings: %w", err)
	}
	s.settings.Store(&settings)
	s.outbox.reschedule(time.Duration(settings.LogDelay))
	return nil
}

// Duration is a time.Duration that JSON writes as text: "1.5s".
type Duration time.Duration

func (d Duration) String() string { return time.Duration(d).String() }

// MarshalText writes the duration as text.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads text that time.ParseDuration takes.
func (d *Duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	*d = Duration(parsed)
	return err
}
