package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"errand/internal/sandbox"
)

type standIn struct {
	Addr           string   `env:"SANDBOX_ADDR" default:"127.0.0.1:8085" help:"Address to listen on."`
	PublicURL      string   `env:"SANDBOX_PUBLIC_URL" placeholder:"URL" help:"Scheme and host of URLs in answers; default: as each request."`
	Hosts          []string `env:"SANDBOX_HOSTS" placeholder:"NAME" help:"More host names for /_sandbox/, comma-separated."`
	MandateToken   string   `env:"SANDBOX_MANDATE_TOKEN" help:"The only access token that is accepted; default: any."`
	PortalKey      string   `env:"SANDBOX_PORTAL_KEY" help:"The only portal key that is accepted; default: any."`
	ChecksumSecret string   `env:"SANDBOX_CHECKSUM_SECRET" help:"Secret to verify checksums and sign callbacks."`
	MailKey        string   `env:"SANDBOX_MAIL_KEY" help:"The only API key that is accepted; default: any."`
	Seed           uint64   `env:"SANDBOX_SEED" default:"1" help:"Seed of bounces and deferrals."`
	AllowCallbacks bool     `env:"SANDBOX_ALLOW_CALLBACKS" help:"Allow callbacks to hosts other than this machine."`
	Quiet          bool     `env:"SANDBOX_QUIET" short:"q" help:"Do not log faults, callbacks and decisions."`
}

func (*standIn) Help() string {
	return `Serves both upstream services on one port, in memory, with pages for people and faults on demand.

Examples:

    errand sandbox
    errand sandbox --addr 127.0.0.1:9000 --mail-key secret
    curl -d '{"operation":"send","kind":"status","status":503,"times":3}' http://127.0.0.1:8085/_sandbox/faults
    curl -X PUT -d '{"latency":"200ms","share_bounced":0.02}' http://127.0.0.1:8085/_sandbox/settings

` + sandbox.Help
}

func (s *standIn) Run(ctx context.Context, c console) error {
	if u, err := url.Parse(s.PublicURL); s.PublicURL != "" && (err != nil || u.Host == "") {
		return invalid("SANDBOX_PUBLIC_URL", "must have a scheme and a host, such as https://sandbox.example.com")
	}
	options := sandbox.Options{MandateToken: s.MandateToken, PortalKey: s.PortalKey, ChecksumSecret: s.ChecksumSecret, MailKey: s.MailKey,
		PublicURL: s.PublicURL, Hosts: s.Hosts, Seed: s.Seed, AllowCallbacks: s.AllowCallbacks}
	if !s.Quiet {
		options.Logf = func(format string, args ...any) {
			fmt.Fprintln(c.errs, time.Now().Format(time.TimeOnly)+"  "+fmt.Sprintf(format, args...))
		}
	}
	err := sandbox.Serve(ctx, s.Addr, options, func(_ *sandbox.Sandbox, base string) { s.greet(c, base) })
	if listen, ok := errors.AsType[*net.OpError](err); ok && listen.Op == "listen" {
		return invalid("SANDBOX_ADDR", "%s", listen.Error())
	}
	return err
}

func (s *standIn) greet(c console, base string) {
	base = cmp.Or(strings.TrimRight(s.PublicURL, "/"), reachable(base))
	const anything = "any non-empty text"
	fmt.Fprintf(c.out, "e-mandate service  %s/v3/mandates   access token: %s   portal key: %s\n", base, cmp.Or(s.MandateToken, anything),
		cmp.Or(s.PortalKey, anything))
	fmt.Fprintf(c.out, "email service      %s/api/v0/messages   key: %s\n", base, cmp.Or(s.MailKey, anything))
	fmt.Fprintf(c.out, "pages              %s/   %s/mail\n", base, base)
	fmt.Fprintf(c.out, "faults, settings   %s/_sandbox/help\n\nFor the programs:\n\n", base)
	for _, v := range []struct{ variable, value string }{
		{"MANDATE_API_URL", base},
		{"MANDATE_API_V2_URL", base},
		{"MANDATE_API_TOKEN", cmp.Or(s.MandateToken, "sandbox-token")},
		{"MANDATE_PORTAL_KEY", cmp.Or(s.PortalKey, "sandbox-portal")},
		{"MANDATE_CHECKSUM_SECRET", s.ChecksumSecret},
		{"MAIL_API_URL", base},
		{"MAIL_API_KEY", cmp.Or(s.MailKey, "sandbox-key")},
	} {
		if v.value != "" {
			fmt.Fprintf(c.out, "    export %s='%s'\n", v.variable, strings.ReplaceAll(v.value, "'", `'\''`)) // one word for a shell
		}
	}
	fmt.Fprintln(c.out, "\nCtrl-C stops it.")
}

// reachable replaces the host of base by loopback if the sandbox listens on all addresses.
func reachable(base string) string {
	u, err := url.Parse(base)
	if err != nil {
		return base
	}
	if ip := net.ParseIP(u.Hostname()); ip != nil && ip.IsUnspecified() {
		u.Host = net.JoinHostPort("127.0.0.1", u.Port())
	}
	return u.String()
}
