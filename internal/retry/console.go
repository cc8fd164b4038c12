package retry

import "time"

// Waits of the program that shows pages.
const (
	// StatusEvery is the pause between two looks at queues and programs.
	StatusEvery = 5 * time.Second
	// LiveEvery is the pause between two versions of a page that is open.
	LiveEvery = time.Second
	// LiveAnyway is the age at which a page is made again although nothing is known to have changed.
	LiveAnyway = 15 * time.Second
	// LiveBeat is how often a stream that has nothing to say shows that it is alive.
	LiveBeat = 15 * time.Second
	// LiveAgain is how soon a browser is to come back whose stream ended.
	LiveAgain = 2 * time.Second
	// LiveLater is how soon when there are too many.
	LiveLater = 30 * time.Second
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
