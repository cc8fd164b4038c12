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
	// Read shows every page, with personal data masked.
	Read Role = "read"
	// Reveal shows personal data, which the console audits.
	Reveal Role = "reveal"
	// Act changes something: redrive, cancel, pause and the like.
	Act Role = "act"
)

var allRoles = []Role{Read, Reveal, Act}

// User is who makes a request.
type User struct {
	// Name is what the login calls the user: printable text of 1 to 100 bytes.
	Name  string `json:"name"`
	Roles []Role `json:"roles"`
}

// May reports whether the user has a role.
func (u User) May(role Role) bool { return slices.Contains(u.Roles, role) }

// maxName bounds a user's name in bytes.
const maxName = 100

// userName returns a name that a login gave, without surrounding white space, or what is
// wrong with it.
func userName(name string) (string, error) {
	name = strings.TrimSpace(name)
	switch {
	case name == "":
		return "", errors.New("the user's name is empty")
	case len(name) > maxName:
		return "", errors.New("the user's name is longer than 100 bytes")
	case !utf8.ValidString(name) || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }):
		return "", errors.New("the user's name has characters that cannot be printed")
	}
	return name, nil
}

func (g Groups) empty() bool { return len(g.Read)+len(g.Reveal)+len(g.Act) == 0 }

// roles are those of somebody who is in these groups; none for a stranger.
func (g Groups) roles(of []string) (roles []Role) {
	in := func(groups []string) bool {
		return slices.ContainsFunc(groups, func(group string) bool { return group != "" && slices.Contains(of, group) })
	}
	reveal, act := in(g.Reveal), in(g.Act)
	if in(g.Read) || reveal || act {
		roles = append(roles, Read)
	}
	if reveal {
		roles = append(roles, Reveal)
	}
	if act {
		roles = append(roles, Act)
	}
	return roles
}

// user is somebody of whom a login gave name and groups, with the roles that the console
// gives. The error is a *Refusal.
func (c *Config) user(name string, groups []string) (User, error) {
	name, err := userName(name)
	if err != nil {
		return User{}, &Refusal{Status: 403, Title: "Not authorized", Text: "The login gave no name that can be used: " + err.Error() + "."}
	}
	roles := c.Groups.roles(groups)
	if len(roles) == 0 {
		return User{}, &Refusal{Status: 403, Title: "Not authorized", Text: name + " is in none of the groups that may use this console."}
	}
	return User{name, c.given(roles)}, nil
}

// given are those of some roles that the console gives at all.
func (c *Config) given(roles []Role) []Role {
	return slices.DeleteFunc(slices.Clone(roles), func(r Role) bool { return !slices.Contains(c.Roles, string(r)) })
}
