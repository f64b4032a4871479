// The Go vulnerability database that make vulncheck reads, as a module: its hash is in
// go.sum, and the module cache holds it like every other module. Nothing imports it, so
// go mod tidy would remove it. Update it with: go get golang.org/x/vulndb@latest
module github.com/ostiary/ostiary/hack/vulndb

go 1.26.0

require golang.org/x/vulndb v0.0.0-20261105234957-e22db6528018
