// Package e2e holds the tests that run several parts of HubN together, on real
// servers and over the protocols that they speak in production. There is nothing
// in it to import.
package e2e
