package programs

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"
)

// parsed is a program with the settings of an environment, and what parsed them.
func parsed[P any](t *testing.T, environment map[string]string) (*P, *kong.Kong) {
	t.Helper()
	for name, value := range environment {
		t.Setenv(name, value)
	}
	p := new(P)
	parser, err := kong.New(p, kong.Name("program"))
	if err == nil {
		_, err = parser.Parse(nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	return p, parser
}

// named are the variables that an error is about, in its order.
func named(t *testing.T, err error) (variables []string) {
	t.Helper()
	if invalid := new(Invalid); !errors.As(err, &invalid) {
		t.Fatalf("got %v, want an *Invalid", err)
	}
	for line := range strings.SplitSeq(err.Error(), "\n") {
		variable, _, _ := strings.Cut(line, ":")
		variables = append(variables, variable)
	}
	return variables
}

func TestAllMissingAndWrongSettingsAreNamedAtOnce(t *testing.T) {
	mandate, _ := parsed[MandateConsumer](t, map[string]string{"CONCURRENCY": "1", "RETRY_TRIES": "0", "MANDATE_API_VERSION": "v2",
		"MANDATE_TIMEZONE": "Mars"})
	want := []string{"RETRY_TRIES", "CONCURRENCY", "MANDATE_API_URL", "MANDATE_API_V2_URL", "MANDATE_API_TOKEN", "MANDATE_TIMEZONE"}
	if diff := cmp.Diff(want, named(t, mandate.Run(t.Context()))); diff != "" {
		t.Errorf("mandate-consumer (-want +got):\n%s", diff)
	}
	if mandate.Timezone = ""; !slices.Contains(named(t, mandate.Run(t.Context())), "MANDATE_TIMEZONE") {
		t.Error("an empty MANDATE_TIMEZONE is taken for UTC")
	}
	mail, _ := parsed[MailConsumer](t, map[string]string{"MAIL_BATCH_SIZE": "1001", "RECIPIENT_KEY": "short"})
	want = []string{"RETRY_TRIES", "CONCURRENCY", "MAIL_API_URL", "MAIL_API_KEY", "RECIPIENT_KEY", "MAIL_BATCH_SIZE"}
	if diff := cmp.Diff(want, named(t, mail.Run(t.Context()))); diff != "" {
		t.Errorf("mail-consumer (-want +got):\n%s", diff)
	}
}

func TestTheRefusalOfPlainHTTPNamesWhatAllowsIt(t *testing.T) {
	p, _ := parsed[MailConsumer](t, map[string]string{"MAIL_API_URL": "http://mail.example.com", "MAIL_API_KEY": "a-long-key",
		"NATS_URL": "nats://127.0.0.1:1"})
	if err := p.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "ALLOW_PLAIN_HTTP=true") {
		t.Errorf("without it: got %v", err)
	}
	p.AllowPlainHTTP = true
	stopped, stop := context.WithCancel(t.Context())
	stop()
	p.AdminAddr, p.Logger = "off", new(zerolog.Nop())
	if err := p.Run(stopped); errors.As(err, new(*Invalid)) {
		t.Errorf("with it: got %v", err)
	}
}

func TestAPortThatIsTakenIsExplained(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }() // it has served
	taken := l.Addr().String()
	_, ofAdmin := serveAdmin(taken, nil, zerolog.Nop())
	receiver, _ := parsed[CallbackReceiver](t, map[string]string{"CALLBACK_LISTEN": taken, "MANDATE_CALLBACK_SECRET": strings.Repeat("s", 32)})
	ofCallbacks := receiver.Run(t.Context())
	_, withoutPort := listen("CALLBACK_LISTEN", "8090", "127.0.0.1:8090")
	for _, c := range []struct {
		err  error
		want []string
	}{
		{ofAdmin, []string{"ADMIN_ADDR: another program listens at " + taken, "such as ADMIN_ADDR=127.0.0.1:"}},
		{ofCallbacks, []string{"CALLBACK_LISTEN: another program listens at " + taken, "such as CALLBACK_LISTEN=127.0.0.1:"}},
		{withoutPort, []string{"CALLBACK_LISTEN: ", "missing port", "for example 127.0.0.1:8090"}},
	} {
		for _, want := range c.want {
			if c.err == nil || !strings.Contains(c.err.Error(), want) {
				t.Errorf("got %v, want it to contain %q", c.err, want)
			}
		}
		if strings.HasSuffix(c.err.Error(), "="+taken) {
			t.Errorf("%v: advises the taken address", c.err)
		}
	}
}

func TestAMisspeltVariableIsNamedWithTheSettingThatWasMeant(t *testing.T) {
	_, parser := parsed[MandateConsumer](t, nil)
	for variable, want := range map[string]string{
		"CONCURENCY":            "CONCURRENCY",
		"MANDATE_API_TOKEN_FIL": "MANDATE_API_TOKEN_FILE",
		"ALLOW_PLAIN_HTPP":      "ALLOW_PLAIN_HTTP",
		"NATS_URI":              "NATS_URL",
		"NATS_PASWORD":          "NATS_PASSWORD",
		// What is set, what others set, and what is near to nothing.
		"CONCURRENCY": "", "MAIL_API_KEY": "", "DATE": "", "RATES": "", "PATH": "", "GOGC": "", "LOG_DIR": "", "NATS_CONTEXT": "",
		"POLL_INTERVAL": "",
		// What Kubernetes gives a container for services named nats, nats-url and mandate-api.
		"NATS_PORT": "", "NATS_SERVICE_HOST": "", "NATS_SERVICE_PORT": "", "NATS_SERVICE_PORT_CLIENT": "", "NATS_PORT_4222_TCP": "",
		"NATS_PORT_4222_TCP_ADDR": "",
		"NATS_URL_PORT":           "", "MANDATE_API_PORT": "", "MANDATE_API_SERVICE_HOST": "",
	} {
		got := ""
		for _, m := range misspelt(parser, []string{variable + "=value"}) {
			got += m.meant
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", variable, got, want)
		}
	}
}

// All programs may have one environment: none takes the other's settings for its own misspelt.
func TestTheSettingsOfOneProgramAreNoMisspellingsOfAnothers(t *testing.T) {
	_, mandate := parsed[MandateConsumer](t, nil)
	_, mail := parsed[MailConsumer](t, nil)
	for _, pair := range [][2]*kong.Kong{{mandate, mail}, {mail, mandate}} {
		var environment []string
		for _, flag := range pair[0].Model.Flags {
			for _, variable := range flag.Envs {
				environment = append(environment, variable+"=value")
			}
		}
		if got := misspelt(pair[1], environment); len(got) > 0 {
			t.Errorf("got %v", got)
		}
	}
}
