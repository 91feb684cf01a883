package rpsl

// Raw is an object as it stands in its file, before anything is made of it. Its
// JSON form is what the command line sends to the Registry.
type Raw struct {
	// File names the source, and Line the line of the object's first attribute.
	File string `json:"file"`
	Line int    `json:"line"`
	// Text are the object's lines, comments included, so that lines can be counted.
	Text string `json:"text"`
	// Refused is why the reader could not take the object, if so; Text is then
	// its beginning. Such a Raw must be sent on like all others: Parse makes a
	// Refusal of it, which keeps prune from removing what the object speaks of.
	Refused string `json:"refused,omitempty"`
}

// Tally counts what was read.
type Tally struct {
	// Files were read; SkippedFiles do not begin with an RPSL class attribute.
	Files        int `json:"files"`
	SkippedFiles int `json:"skipped_files"`
	// Objects are of the classes that HubN takes; Others are how many there are
	// of each other class of RPSL.
	Objects int           `json:"objects"`
	Others  map[Class]int `json:"others,omitempty"`
}
