package sink_test

import (
	"testing"

	"errand/internal/devkit/devtest"
)

func TestMain(m *testing.M) { devtest.Main(m) }
