package retry

import "time"

// Waits of the program that shows pages.
const (
	// StatusEvery is the pause between two looks at queues and programs.
	StatusEvery = 5 * time.Second
	// PageAge is after how long an open page is made again although nothing is known to have changed.
	PageAge = 15 * time.Second
	// PageRead is how long a browser's request may take to come.
	PageRead = 15 * time.Second
	// PageWrite is how long a browser may take to read what it is sent.
	PageWrite = 20 * time.Second
	// PageMake is how long it may take to make a page.
	PageMake = 8 * time.Second
	// PageAct is how long an act of a person may take, and the page that previews it.
	PageAct = 15 * time.Second
	// PageErase is how long an act may take that reads all rows of the sending log.
	PageErase = 5 * time.Minute
)
