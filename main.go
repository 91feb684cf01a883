// Command hubn keeps a registry of network resources, and makes the world follow it.
package main

import "hubn/app"

func main() { app.Main() }
