package sink_test

import (
	"testing"

	"errand/internal/sandbox/devkit/devtest"
)

func TestMain(m *testing.M) { devtest.Main(m) }
