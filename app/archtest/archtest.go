// Package archtest holds the walls between the parts of HubN as a test: which
// package may not import which, and why. There is nothing in it to import.
package archtest
