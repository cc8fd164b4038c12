// Package natscontext reads the contexts of the nats tool: files that say how to reach NATS and as whom.
package natscontext

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"errand/internal/bus"
)

// Options say how a person's program reaches NATS: flags and variables, and a context of the nats tool where they are not set.
type Options struct {
	bus.Connection

	Context string `env:"NATS_CONTEXT" placeholder:"NAME" help:"A context of the nats tool, for what the options above do not say."`
}

// settings is what errand reads of a context's file.
type settings struct {
	URL         string `json:"url"`
	Token       string `json:"token"`
	User        string `json:"user"`
	Password    string `json:"password"`
	Creds       string `json:"creds"`
	Nkey        string `json:"nkey"`
	Cert        string `json:"cert"`
	Key         string `json:"key"`
	CA          string `json:"ca"`
	JSDomain    string `json:"jetstream_domain"`
	JSPrefix    string `json:"jetstream_api_prefix"`
	InboxPrefix string `json:"inbox_prefix"`
}

// unsupported are settings of a context that change where or how the nats tool connects.
var unsupported = []string{"nsc", "jetstream_event_prefix", "socks_proxy", "user_jwt", "user_seed", "windows_cert_store"}

// Resolve is the connection with its context, if one is named. The error says what is wrong with NATS_CONTEXT.
func (a Options) Resolve() (bus.Connection, error) {
	if a.Context == "" {
		return a.Connection, nil
	}
	invalid := func(format string, args ...any) (bus.Connection, error) {
		return bus.Connection{}, fmt.Errorf(format, args...)
	}
	if strings.ContainsAny(a.Context, `/\`) || a.Context == ".." {
		return invalid("%q is not a valid name of a context", a.Context)
	}
	dir, err := contexts()
	if err != nil {
		return invalid("%v", err)
	}
	data, err := os.ReadFile(filepath.Join(dir, a.Context+".json"))
	if errors.Is(err, fs.ErrNotExist) {
		return invalid("there is no context %q in %s; there are: %s", a.Context, dir, strings.Join(names(dir), ", "))
	}
	var all map[string]any
	var said settings
	if err = cmp.Or(err, json.Unmarshal(data, &all), json.Unmarshal(data, &said)); err != nil {
		return invalid("context %q cannot be read: %v", a.Context, err)
	}
	for _, name := range unsupported {
		if value, ok := all[name].(string); ok && value != "" {
			return invalid("context %q has %s, which errand does not know", a.Context, name)
		}
	}
	if strings.HasPrefix(said.Password, "op://") || strings.HasPrefix(said.Creds, "op://") {
		return invalid("context %q has its secret in a password manager: give it by NATS_PASSWORD_FILE or NATS_CREDS", a.Context)
	}
	return said.under(a.Connection), nil
}

// under fills what a connection does not set with a context's settings.
func (n settings) under(c bus.Connection) bus.Connection {
	if c.URL == defaultURL && n.URL != "" {
		c.URL = n.URL
		if n.Token != "" {
			c.URL = withToken(n.URL, n.Token)
		}
	}
	if c.User == "" && c.Creds == "" && c.Nkey == "" { // the user comes from one place
		c.User, c.Creds, c.Nkey = n.User, homed(n.Creds), homed(n.Nkey)
		if c.Password == "" && c.PasswordFile == "" {
			c.Password = n.Password
		}
	}
	if c.Cert == "" && c.Key == "" {
		c.Cert, c.Key = homed(n.Cert), homed(n.Key)
	}
	if c.CA == "" {
		c.CA = homed(n.CA)
	}
	if c.JSDomain == "" && c.JSPrefix == "" {
		c.JSDomain, c.JSPrefix = n.JSDomain, n.JSPrefix
	}
	c.InboxPrefix = n.InboxPrefix
	return c
}

// defaultURL is the default of bus.Connection, which counts as not set.
const defaultURL = "nats://127.0.0.1:4222"

// withToken puts a token into addresses of servers that have none.
func withToken(servers, token string) string {
	list := strings.Split(servers, ",")
	for i, server := range list {
		if server = strings.TrimSpace(server); !strings.Contains(server, "://") {
			server = "nats://" + server
		}
		if u, err := url.Parse(server); err == nil && u.User == nil {
			u.User = url.User(token)
			list[i] = u.String()
		}
	}
	return strings.Join(list, ",")
}

// homed replaces ~ in a path by the user's directory.
func homed(path string) string {
	if rest, found := strings.CutPrefix(path, "~/"); found {
		if home, err := os.UserHomeDir(); err == nil {
			return filepath.Join(home, rest)
		}
	}
	return path
}

// contexts is the directory where the nats tool keeps its contexts.
func contexts() (string, error) {
	parent := os.Getenv("XDG_CONFIG_HOME")
	if parent == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", err
		}
		parent = filepath.Join(home, ".config")
	}
	return filepath.Join(parent, "nats", "context"), nil
}

// names are the names of all contexts in a directory.
func names(dir string) (names []string) {
	files, _ := filepath.Glob(filepath.Join(dir, "*.json")) // a name that is not a pattern has no contexts
	for _, file := range files {
		names = append(names, strings.TrimSuffix(filepath.Base(file), ".json"))
	}
	return names
}
