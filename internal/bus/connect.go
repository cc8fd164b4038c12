package bus

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"errand/internal/keyfile"
	"errand/internal/loopback"
	"errand/internal/retry"
)

// Connection says how to reach NATS; the nats tool has the same environment variables.
type Connection struct {
	URL          string `name:"nats-url" env:"NATS_URL" default:"nats://127.0.0.1:4222" help:"NATS servers, separated by commas."`
	Creds        string `name:"nats-creds" env:"NATS_CREDS" placeholder:"FILE" help:"NATS credentials file."`
	Nkey         string `name:"nats-nkey" env:"NATS_NKEY" placeholder:"FILE" help:"NATS nkey seed file."`
	User         string `name:"nats-user" env:"NATS_USER" help:"NATS user."`
	Password     string `name:"nats-password" env:"NATS_PASSWORD" help:"NATS password; better given by the environment than as a flag, which the process list shows."`
	PasswordFile string `name:"nats-password-file" env:"NATS_PASSWORD_FILE" placeholder:"FILE" help:"File that holds the NATS password; read again at each connect."`
	CA           string `name:"nats-ca" env:"NATS_CA" placeholder:"FILE" help:"Certificate authority that signed the NATS servers' certificates (PEM)."`
	Cert         string `name:"nats-cert" env:"NATS_CERT" placeholder:"FILE" help:"Client certificate for NATS (PEM); needs --nats-key."`
	Key          string `name:"nats-key" env:"NATS_KEY" placeholder:"FILE" help:"Key of the client certificate for NATS (PEM)."`
	TLSName      string `name:"nats-tls-name" env:"NATS_TLS_NAME" placeholder:"NAME" help:"Name in the NATS servers' certificates, if the address has another."`
	JSDomain     string `name:"nats-js-domain" env:"NATS_JS_DOMAIN" placeholder:"NAME" help:"JetStream domain of errand's streams, behind a leaf node."`
	JSPrefix     string `name:"nats-js-prefix" env:"NATS_JS_PREFIX" placeholder:"PREFIX" help:"Prefix of JetStream's API, if not $JS.API."`

	AllowPlain bool `name:"allow-plain-nats" env:"ALLOW_PLAIN_NATS" help:"Allow a NATS password or token without TLS to a server that is not on this machine."`

	// InboxPrefix replaces the user's inbox.
	InboxPrefix string `kong:"-"`
	// Dialer replaces the network in tests.
	Dialer nats.CustomDialer `kong:"-"`
}

// Validate names the variable that is wrong. A password or token must not be sent where others can read it.
func (c Connection) Validate() error {
	all := servers(c.URL)
	exposed := func(u *url.URL) bool { return c.inClear(u) && !loopback.Is(u.Hostname()) }
	switch {
	case len(all) == 0 || slices.ContainsFunc(all, isNoServer):
		return errNoServers
	case (c.Cert == "") != (c.Key == ""):
		return errors.New("NATS_CERT and NATS_KEY: give both or neither")
	case c.Creds != "" && c.Nkey != "":
		return errors.New("NATS_CREDS and NATS_NKEY: give one of them")
	case c.Password != "" && c.PasswordFile != "":
		return errors.New("NATS_PASSWORD and NATS_PASSWORD_FILE: give one of them")
	case c.User == "" && c.PasswordFile != "":
		return errors.New("NATS_PASSWORD_FILE: give NATS_USER too, whose password it is")
	case c.JSDomain != "" && c.JSPrefix != "":
		return errors.New("NATS_JS_DOMAIN and NATS_JS_PREFIX: give one of them")
	case !apiPrefix.MatchString(c.prefix()):
		return errors.New("NATS_JS_DOMAIN and NATS_JS_PREFIX: must be a subject without spaces and wildcards")
	case slices.ContainsFunc(all, exposed):
		return errors.New("NATS_URL: a password or token would travel in the clear: " +
			"use tls://, give NATS_CA, or set ALLOW_PLAIN_NATS if the network is yours alone")
	}
	return nil
}

// inClear reports whether a password or token may be sent to a server without TLS. With a certificate authority, a
// certificate or a TLS name there is TLS or no connection; nkeys and credentials sign and are not sent.
func (c Connection) inClear(u *url.URL) bool {
	secret := c.Password != "" || c.PasswordFile != "" || u.User != nil
	return secret && !c.AllowPlain && c.CA == "" && c.Cert == "" && c.TLSName == "" && (u.Scheme == "nats" || u.Scheme == "ws")
}

var errNoServers = errors.New("NATS_URL: must be a list of server addresses such as nats://127.0.0.1:4222")

// servers are the addresses in a list; an invalid one is empty.
func servers(s string) (all []*url.URL) {
	for server := range strings.FieldsFuncSeq(s, func(r rune) bool { return r == ',' }) {
		server = strings.TrimSpace(server)
		if !strings.Contains(server, "://") {
			server = "nats://" + server
		}
		u, err := url.Parse(server)
		if err != nil {
			u = new(url.URL)
		}
		all = append(all, u)
	}
	return all
}

// Servers are the addresses of the servers, without users, passwords and tokens.
func (c Connection) Servers() (all []string) {
	for _, u := range servers(c.URL) {
		all = append(all, u.Scheme+"://"+u.Host)
	}
	return all
}

// isNoServer reports whether u lacks the scheme, the host or a valid port of a server: the library would try to reach it for ever.
func isNoServer(u *url.URL) bool {
	host := u.Hostname()
	port, err := strconv.ParseUint(cmp.Or(u.Port(), "4222"), 10, 16)
	return !slices.Contains([]string{"nats", "tls", "ws", "wss"}, u.Scheme) || host == "" ||
		strings.Contains(host, ":") && !strings.HasPrefix(u.Host, "[") || err != nil || port == 0
}

// Connect starts a connection that outlives every outage of the servers, also when none answered at first. Credentials
// and certificates that cannot be read are errors; a silent server is not.
func Connect(c Connection, name string, log zerolog.Logger) (*nats.Conn, error) {
	opts := []nats.Option{
		nats.Name(name),
		// One for each user, so that none receives another's answers. Without NATS_USER it is the program's name.
		nats.CustomInboxPrefix(cmp.Or(c.InboxPrefix, "_INBOX_"+inboxToken(cmp.Or(c.User, name)))),
		nats.MaxReconnects(-1), // the default gives up after two minutes, for good
		nats.ReconnectWait(retry.Reconnect),
		nats.RetryOnFailedConnect(true),
		nats.IgnoreAuthErrorAbort(), // credentials come back too; the default closes for good at the second refusal
		nats.PingInterval(retry.Ping),
		nats.MaxPingsOutstanding(2),
		nats.PermissionErrOnSubscribe(true),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			// A missing permission shows nowhere else: to the caller it looks like a timeout.
			log.Warn().Err(err).Msg("nats")
		}),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil {
				log.Warn().Err(err).Msg("nats: connection lost, reconnecting")
			}
		}),
		nats.ClosedHandler(func(nc *nats.Conn) { prefixes.Delete(nc) }),
		nats.ReconnectHandler(func(nc *nats.Conn) {
			log.Info().Str("server", nc.ConnectedServerName()).Msg("nats: reconnected")
		}),
	}
	if slices.ContainsFunc(servers(c.URL), c.inClear) { // only servers on this machine, not others that they name
		opts = append(opts, nats.IgnoreDiscoveredServers())
	}
	dialer := c.Dialer
	if dialer == nil {
		dialer = &net.Dialer{Timeout: nats.DefaultTimeout}
	}
	opts = append(opts, nats.SetCustomDialer(gathering{dialer}))
	identity, err := c.identity(log)
	if err != nil {
		return nil, err
	}
	nc, err := nats.Connect(c.URL, append(opts, identity...)...)
	if _, odd := errors.AsType[*url.Error](err); odd { // it quotes the address, which may hold a password
		return nil, errNoServers
	}
	if err != nil {
		return nil, fmt.Errorf("NATS_URL: connect: %w", err)
	}
	if prefix := c.prefix(); prefix != defaultPrefix {
		prefixes.Store(nc, prefix)
	}
	return nc, nil
}

const defaultPrefix = "$JS.API"

// prefixes are the prefixes of JetStream's API that are not the default, by connection: all that asks JetStream has that alone.
var prefixes sync.Map

var apiPrefix = regexp.MustCompile(`^[^\s*>.]+(\.[^\s*>.]+)*$`)

// prefix is what precedes the questions to JetStream, without a final dot.
func (c Connection) prefix() string {
	if c.JSDomain != "" {
		return "$JS." + c.JSDomain + ".API"
	}
	return cmp.Or(strings.TrimSuffix(c.JSPrefix, "."), defaultPrefix)
}

// api is the subject of a question to JetStream, such as STREAM.INFO.MAIL_EVENTS.
func api(nc *nats.Conn, question string) string {
	if prefix, other := prefixes.Load(nc); other {
		return prefix.(string) + "." + question
	}
	return defaultPrefix + "." + question
}

// OpenJetStream opens JetStream, under the connection's prefix, without asking it anything.
func OpenJetStream(nc *nats.Conn) (jetstream.JetStream, error) {
	return jetstream.NewWithAPIPrefix(nc, strings.TrimSuffix(api(nc, ""), "."))
}

// identity is the user, and the authorities that it trusts.
func (c Connection) identity(log zerolog.Logger) (opts []nats.Option, err error) {
	switch {
	case c.PasswordFile != "":
		text, err := keyfile.Read(c.PasswordFile)
		if err != nil {
			return nil, fmt.Errorf("NATS_PASSWORD_FILE: %w", err)
		}
		p := &password{file: c.PasswordFile, log: log, text: text}
		opts = append(opts, nats.UserInfoHandler(func() (string, string) { return c.User, p.now() }))
	case c.User != "":
		opts = append(opts, nats.UserInfo(c.User, c.Password))
	}
	for _, f := range []struct {
		variable, file string
		option         nats.Option
	}{
		{"NATS_CREDS", c.Creds, nats.UserCredentials(c.Creds)},
		{"NATS_CA", c.CA, nats.RootCAs(c.CA)},
		{"NATS_CERT", c.Cert, nats.ClientCert(c.Cert, c.Key)},
	} {
		if f.file == "" {
			continue
		}
		if err := readable(f.option); err != nil {
			return nil, fmt.Errorf("%s: %w", f.variable, err)
		}
		opts = append(opts, f.option)
	}
	if c.Nkey != "" {
		o, err := nats.NkeyOptionFromSeed(c.Nkey)
		if err != nil {
			return nil, fmt.Errorf("NATS_NKEY: %w", err)
		}
		opts = append(opts, o)
	}
	if c.CA != "" || c.Cert != "" || c.TLSName != "" {
		opts = append(opts, nats.Secure(&tls.Config{MinVersion: tls.VersionTLS12, ServerName: c.TLSName}))
	}
	return opts, nil
}

// readable returns why the files of an option cannot be used. Connecting would not say which setting names them.
func readable(option nats.Option) error {
	var o nats.Options
	if err := option(&o); err != nil {
		return err
	}
	if o.UserJWT != nil {
		_, err := o.UserJWT()
		return err
	}
	return nil
}

func inboxToken(user string) string {
	b := []byte(user)
	for i, c := range b {
		if c <= ' ' || c == '.' || c == '*' || c == '>' || c >= 0x7f {
			b[i] = '_'
		}
	}
	return string(b)
}

// ErrNotUp means that the context ended before there was a connection.
var ErrNotUp = errors.New("nats: not connected")

// Up waits until there is a connection, and logs when that takes long.
func Up(ctx context.Context, nc *nats.Conn, log zerolog.Logger) error {
	for n := 0; !nc.IsConnected(); n++ {
		if n%50 == 49 {
			log.Warn().Err(nc.LastError()).Msg("nats: no server answers yet, still trying; is NATS_URL right?")
		}
		if !retry.Pause(ctx, retry.NotConnected) {
			return fmt.Errorf("%w: %w", ErrNotUp, context.Cause(ctx))
		}
	}
	return nil
}

// Refused reports whether err says that the server does not authorize this user, or no longer does.
func Refused(err error) bool {
	return errors.Is(err, nats.ErrAuthorization) || errors.Is(err, nats.ErrAuthExpired) || errors.Is(err, nats.ErrAuthRevoked) ||
		errors.Is(err, nats.ErrAccountAuthExpired)
}

// Fault says why there is no connection; "" while there is one.
func Fault(nc *nats.Conn) string {
	if nc.IsConnected() {
		return ""
	}
	switch err := nc.LastError(); {
	case err == nil: // what a silent server does to a client is forgotten at once
		return "not connected to NATS: no server answers; is NATS_URL right, and does one run there?"
	case Refused(err):
		return fmt.Sprintf("not connected to NATS: the server does not authorize this user (%v); "+
			"are NATS_USER and its password, key or credentials right?", err)
	default:
		return fmt.Sprintf("not connected to NATS: %v", err)
	}
}

// Explain adds to a server's silence the right that it refused last: a missing permission shows nowhere else.
func Explain(nc *nats.Conn, err error) error {
	if said := nc.LastError(); errors.Is(err, context.DeadlineExceeded) && errors.Is(said, nats.ErrPermissionViolation) {
		return fmt.Errorf("%w; %w; give this NATS user the rights that it has in deploy/nats/errand.conf", err, said)
	}
	return err
}

// password is read from a file again at each connect, so that a new one needs no restart.
type password struct {
	file string
	log  zerolog.Logger

	mu   sync.Mutex
	text string
	said string // the last error
}

// now is the password to connect with. An error, which never quotes it, is logged once and not at each of two tries a second.
func (p *password) now() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch text, err := keyfile.Read(p.file); {
	case err == nil:
		p.text, p.said = text, ""
	case err.Error() != p.said:
		p.said = err.Error()
		p.log.Warn().Err(err).Msg("nats: NATS_PASSWORD_FILE cannot be read again, the old password is kept")
	}
	return p.text
}
