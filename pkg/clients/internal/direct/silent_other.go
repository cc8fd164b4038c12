//go:build !unix

package direct

const canAsk = false

func (*line) silent() bool { return false }
