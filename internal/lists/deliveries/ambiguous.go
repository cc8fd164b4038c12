package deliveries

import (
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
)

// group is the rows of one person that can be of the same several calls.
type group struct {
	places []place
	calls  int               // a batch may have several
	rows   map[uint64]status // by rowID
}

// groupCost is what a group takes, in recipients; each of its rows takes one more.
const groupCost = 7

var seed = maphash.MakeSeed()

// addAmbiguous records the state of a row that can be of several calls.
func (x *calls) addAmbiguous(r row, id uint64, s status) {
	c := x.candidates(r)
	if len(c.likely) < 2 {
		return
	}
	made := &group{rows: map[uint64]status{}}
	for _, l := range c.likely {
		made.places, made.calls = append(made.places, l.place), made.calls+l.calls
	}
	home, _ := x.find(made.places[0].request)
	key := maphash.String(seed, fmt.Sprint(r.to.plain, made.places))
	g := home.groups[key]
	if g == nil {
		g, home.groups[key] = made, made
		x.grow(home, groupCost)
	}
	if _, known := g.rows[id]; !known {
		x.grow(home, 1)
	}
	g.rows[id] = g.rows[id].then(s)
}

// settle counts the rows of groups for each recipient that they can be of, and returns the
// requests whose counts changed.
func (x *calls) settle() (changed []string) {
	for _, generation := range x.generations {
		for _, g := range generation.groups {
			s := x.state(g)
			for _, p := range g.places {
				if _, r := x.recipient(p); s != unseen && r.status.then(s) != r.status {
					x.observe(p, s, false)
					changed = append(changed, p.request)
				}
			}
		}
	}
	return changed
}

// state is that of all rows of a group, if all its calls were accepted and are as many as its rows; otherwise unseen.
func (x *calls) state(g *group) status {
	all := slices.Compact(slices.Sorted(maps.Values(g.rows)))
	if len(g.rows) != g.calls || len(all) > 1 {
		return unseen
	}
	for _, p := range g.places {
		if b, r := x.recipient(p); b == nil || !b.accepted || r.proven {
			return unseen
		}
	}
	return all[0]
}
