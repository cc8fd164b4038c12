// Command console serves pages for those on call: what is wrong, what became of a request,
// dead letters and what to do about them.
package main

import (
	"errand/internal/oncall/console"
	"errand/internal/programs"
)

func main() {
	programs.Main("console", "Shows requests, queues and dead letters as web pages, and lets people act on them.", new(console.Program))
}
