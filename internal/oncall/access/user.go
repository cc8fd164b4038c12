package access

import (
	"errors"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Role is something that a user may do.
type Role string

// The roles.
const (
	Read   Role = "read"   // see every page, with personal data masked
	Reveal Role = "reveal" // see personal data, which is audited
	Act    Role = "act"    // redrive, discard, cancel, pause
)

var allRoles = []Role{Read, Reveal, Act}

// User is who makes a request.
type User struct {
	Name  string `json:"name"` // as the login names them: 1 to 100 bytes of printable text
	Roles []Role `json:"roles"`
}

// May reports whether the user has a role.
func (u User) May(role Role) bool { return slices.Contains(u.Roles, role) }

// maxName is the maximum length of a user's name in bytes.
const maxName = 100

// userName returns a valid name without surrounding white space, or an error that says what is wrong with it.
func userName(name string) (string, error) {
	name = strings.TrimSpace(name)
	switch {
	case name == "":
		return "", errors.New("the user's name is empty")
	case len(name) > maxName:
		return "", errors.New("the user's name is longer than 100 bytes")
	case !utf8.ValidString(name) || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }):
		return "", errors.New("the user's name has characters that are not printable")
	}
	return name, nil
}

func (g Groups) empty() bool { return len(g.Read)+len(g.Reveal)+len(g.Act) == 0 }

func (g Groups) roles(of []string) (roles []Role) {
	for _, role := range allRoles {
		in := map[Role][]string{Read: slices.Concat(g.Read, g.Reveal, g.Act), Reveal: g.Reveal, Act: g.Act}[role]
		if slices.ContainsFunc(in, func(group string) bool { return group != "" && slices.Contains(of, group) }) {
			roles = append(roles, role)
		}
	}
	return roles
}

// user returns the user of a login with the roles that the console grants. The error is a *Refusal.
func (c *Config) user(name string, groups []string) (User, error) {
	name, err := userName(name)
	if err != nil {
		return User{}, &Refusal{Status: 403, Title: "Not authorized", Text: "The login did not provide a valid name: " + err.Error() + "."}
	}
	roles := c.Groups.roles(groups)
	if len(roles) == 0 {
		return User{}, &Refusal{Status: 403, Title: "Not authorized", Text: name + " is not in a group that may use this console."}
	}
	return User{name, c.granted(roles)}, nil
}

// granted returns the roles that the console grants, of those given.
func (c *Config) granted(roles []Role) []Role {
	return slices.DeleteFunc(slices.Clone(roles), func(r Role) bool { return !slices.Contains(c.Roles, string(r)) })
}
