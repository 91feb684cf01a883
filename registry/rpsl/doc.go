// Package rpsl reads registries written in RPSL (RFC 2622, RFC 4012, and what
// the RIPE database and dn42 made of it) and plans what they change in HubN's
// Registry. It is pure: it knows neither database nor HTTP.
//
// It has three steps. Walk finds the objects in files, folders, gzip and
// standard input, as text that knows its file and line (Raw); it is all that
// the command line needs, which sends them to the Registry. Parse makes of a Raw
// a typed object that cannot be wrong, or a Refusal. PlanImport compares the
// objects with the State of the Registry and returns a Plan: rows to insert,
// update and delete. An object that cannot be taken is refused whole, with file,
// line and reason; the rest goes on.
//
// # How objects become resources
//
// inetnum, inet6num: a prefix of provenance "registered". Its range becomes the
// fewest prefixes that make it up, each with all that the object says; the key
// stays the range, so deleting the object removes them all. Where another object
// is exactly one of these prefixes, that object holds it. A prefix may be written
// as a range or as a CIDR; a `cidr:` must say the same as the range.
//
//   - org, else the first mnt-by → organisation; neither: nobody holds it. An
//     organisation that is not there is made. Handles are compared without case.
//   - netname → name.
//   - status → kind: "ALLOCATED …" and "SUB-ALLOCATED …" → allocation,
//     "ASSIGNED …" → assignment, "ALLOCATED UNSPECIFIED" and
//     "LIR-PARTITIONED …" → container. No status, or another one: assignment.
//     dn42's "policy: reserved" → reserved. The whole address space, 0.0.0.0/0
//     or ::/0, is a container whatever it says: nobody can hold it.
//   - nserver → delegated reverse DNS; hosted where all name servers match
//     Options.OwnNameServers (they stay stored, as the NS of the hosted zone);
//     none: inherit. Addresses after a host name (glue) are read and checked,
//     and not stored: the names of the servers lie outside the reverse zone.
//   - ds-rdata → DS; without nserver the object is refused, since there is no
//     delegation that the DS could secure.
//
// route, route6: the routing settings of the prefix of exactly that CIDR. All
// route objects of a prefix in one input are united first; the key is the prefix.
//
//   - One origin: announced, with the origin and the max-length as it is stated
//     or not stated.
//   - Several origins: an anycast allocation with the service ServiceName(prefix)
//     and one route origin each; the prefix itself is not announced. A later
//     change back to one origin moves back.
//   - Where no such prefix is registered, one of provenance "implied" is made: an
//     assignment without reverse-DNS settings of its own. It belongs to whom the
//     route names (org, else the first mnt-by), else to whom holds the smallest
//     prefix around it, and then follows that. It goes with its route.
//   - A max-length belongs to each origin of its object. Where united objects
//     differ in the max-length of one origin, the later one holds, with a note.
//
// aut-num: the holder (org, else the first mnt-by) and name (as-name) of the AS
// number. AS 0 can be an origin, but nobody can hold it (RFC 7607).
//
// # How objects change what is there
//
// An object replaces the earlier state of its key completely: origins that a
// route no longer names go, and so do name servers. A prefix that the input
// names is active, whatever it was before. Objects that the input does not name
// are left alone, except for the parents of prefixes, and for implied prefixes
// that follow the holder around them.
//
// An object with a `delete:` attribute is removed; its primary key is enough. A
// route with origins loses these, one without loses all. A prefix whose inetnum
// goes while its route stays becomes implied; without a route it goes, and its
// children move to the prefix around it. Deleting what is not there changes nothing.
//
// Of several objects with one key the last one holds (routes are united
// instead); the others are noted as superseded.
//
// A prefix is not deleted while it has dependants or anycast allocations that
// were made by hand: every object that asks for it is refused.
//
// With Options.Prune the Registry becomes equal to the input in prefixes, routes
// and AS numbers. Organisations stay, also without resources: their contacts and
// grants were made by hand. So do anycast allocations that were made by hand.
// What a refused object speaks of is left as it is; where an object does not
// even say what it is, nothing of its class is pruned: it may be any of them. An
// input without any object prunes nothing.
package rpsl
