package rpsl

// Raw is an object as it stands in its file, before anything is made of it.
type Raw struct {
	// File names the source, and Line the line of the object's first attribute.
	File string
	Line int
	// Text are the object's lines, comments included, so that lines can be counted.
	Text string
	// Refused is why the reader could not take the object, if so; Text is then
	// its beginning. Such a Raw must be sent on like all others: Parse makes a
	// Refusal of it, which keeps prune from removing what the object speaks of.
	Refused string
}

// Tally counts what was read.
type Tally struct {
	// Files were read; SkippedFiles do not begin with an RPSL class attribute.
	Files        int
	SkippedFiles int
	// Objects are of the classes that HubN takes; Others are how many there are
	// of each other class of RPSL.
	Objects int
	Others  map[Class]int
}
