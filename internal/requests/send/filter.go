package send

// filter is a Bloom filter: it remembers recipients in a byte or two each, and takes a few new ones for known. It grows
// by parts, each twice as large as the one before, so that a list of some hundred thousand does not cost megabytes; the
// last part has no limit, and is wrong more and more often.
type filter struct {
	parts    [][]block
	perBlock int // recipients per block of a part before the next part is made
	added    int // to the last part
}

// block is one cache line: a recipient has a bit in each of its words.
type block [8]uint64

const maxParts = 4

func newFilter(blocks, perBlock int) *filter {
	return &filter{parts: [][]block{make([]block, blocks)}, perBlock: perBlock}
}

// add remembers r, and reports whether it is surely new.
func (f *filter) add(r recipient) (isNew bool) {
	// Recipients are hashes, so their bits choose the block and the bits in it.
	at, bits := r[0], r[1]
	last := len(f.parts) - 1
	for _, part := range f.parts[:last] {
		if part[at%uint64(len(part))].has(bits) {
			return false
		}
	}
	part := f.parts[last]
	b := &part[at%uint64(len(part))]
	if b.has(bits) {
		return false
	}
	for i := range b {
		b[i] |= 1 << (bits >> (6 * i) & 63)
	}
	if f.added++; f.added >= f.perBlock*len(part) && len(f.parts) < maxParts {
		f.parts, f.added = append(f.parts, make([]block, 2*len(part))), 0
	}
	return true
}

func (b *block) has(bits uint64) bool {
	for i := range b {
		if b[i]>>(bits>>(6*i)&63)&1 == 0 {
			return false
		}
	}
	return true
}

// set is a set of small numbers, a bit each.
type set []uint64

func (s *set) add(i int) {
	for i/64 >= len(*s) {
		*s = append(*s, 0)
	}
	(*s)[i/64] |= 1 << (i % 64)
}

func (s set) has(i int) bool { return i/64 < len(s) && s[i/64]>>(i%64)&1 == 1 }
