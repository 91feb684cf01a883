package registry

import _ "embed" // the page of the API

// docsPage shows the OpenAPI document without loading anything from elsewhere.
//
//go:embed docs.html
var docsPage []byte
