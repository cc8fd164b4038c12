package programs

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/bus"
)

// Sizes are the maximum sizes of streams.
type Sizes struct {
	Each int64 // for streams that are not in Of; 0 means not given
	Of   bus.MaxBytes
}

// UnmarshalText reads sizes separated by commas, STREAM=SIZE for one stream.
func (s *Sizes) UnmarshalText(text []byte) error {
	if s.Of == nil { // a flag that is given twice adds to what it said first
		s.Of = bus.MaxBytes{}
	}
	for part := range strings.SplitSeq(string(text), ",") {
		stream, number, named := strings.Cut(part, "=")
		if !named {
			stream, number = "", part
		}
		var n Size
		if err := n.UnmarshalText([]byte(number)); err != nil {
			return err
		}
		_, twice := s.Of[stream]
		switch {
		case twice || stream == "" && s.Each != 0:
			return fmt.Errorf("must not have two sizes for the same streams, got %q", text)
		case stream == "":
			s.Each = int64(n)
		case !slices.ContainsFunc(bus.Streams(bus.Limits{}), func(c jetstream.StreamConfig) bool {
			return c.Name == stream && !c.AllowMsgSchedules
		}):
			return fmt.Errorf("must name a stream of errand that may be limited, got %q", stream)
		default:
			s.Of[stream] = int64(n)
		}
	}
	return nil
}

// Size is a number of bytes, or bus.Unlimited.
type Size int64

// minSize is the minimum size of a stream: one message of the maximum size.
const minSize = 1 << 20

// UnmarshalText reads 1073741824, 1048576K, 1024M, 1G or none.
func (s *Size) UnmarshalText(text []byte) error {
	number, shift := strings.ToUpper(string(text)), 0
	if number == "NONE" {
		*s = bus.Unlimited
		return nil
	}
	if unit := strings.IndexAny(number, "KMGT"); unit > 0 && unit == len(number)-1 {
		shift = 10 * (1 + strings.IndexByte("KMGT", number[unit]))
		number = number[:unit]
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n > math.MaxInt64>>shift || n<<shift < minSize {
		return fmt.Errorf("must be 1M or more, such as 512M or 10G, or none, got %q", text)
	}
	*s = Size(n << shift)
	return nil
}
