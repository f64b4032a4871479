package uncounted

import (
	"math"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
)

// extent bounds a value: its elements if it is a list or a map, those of each list and map
// nested in it, and the bytes of each text in it. The weight bounds all of it together: one
// for itself and for each value in it, doubleWeight if that is a double, and a tenth for
// each byte of a text. CEL charges at most the weight for reading all of it. The numbers are
// float64, so that products never overflow.
type extent struct {
	elements, nested, text, weight float64

	most      float64 // that an integer can be; zero if that is not known
	container bool    // it is known to be a list or a map
	constant  ref.Val // the value of a literal, else nil
}

// doubleWeight is the weight of a double, which has up to 316 digits in a formatted list.
const doubleWeight = 6

// scalar is the extent of a number, a truth value, a time, and of opaque values without texts.
func scalar() extent { return extent{elements: 1, text: 1, weight: doubleWeight} }

func textOf(bytes float64) extent { return extent{elements: 1, text: bytes, weight: 1 + bytes/10} }

// textsOf is the extent of a list of texts with a number of bytes together.
func textsOf(elements, bytes float64) extent {
	return extent{elements: elements, nested: 1, text: bytes, weight: 1 + elements + bytes/10, container: true}
}

func unlimited() extent {
	infinite := math.Inf(1)
	return extent{elements: infinite, nested: infinite, text: infinite, weight: infinite}
}

func literal(value ref.Val) extent {
	size := scalar()
	if text, ok := value.(types.String); ok {
		size = textOf(float64(len(text)))
	}
	if bytes, ok := value.(types.Bytes); ok {
		size = textOf(float64(len(bytes)))
	}
	size.constant = value
	return size
}

// part bounds a field or an element of a value.
func (e extent) part() extent {
	return extent{elements: e.nested, nested: e.nested, text: e.text, weight: e.weight}
}

// with bounds a list or a map with another value in it.
func (e extent) with(part extent) extent {
	return extent{
		elements: e.elements + 1, nested: max(e.nested, part.elements, part.nested),
		text: max(e.text, part.text), weight: e.weight + part.weight, container: e.container,
	}
}

// plus bounds the sum of two lists or texts.
func (e extent) plus(o extent) extent {
	sum := extent{
		elements: e.elements + o.elements, nested: max(e.nested, o.nested),
		text: e.text + o.text, weight: e.weight + o.weight,
	}
	if e.container || o.container {
		sum.text, sum.container = max(e.text, o.text), true
	}
	return sum
}

// union bounds a value that is one of two.
func (e extent) union(o extent) extent {
	return extent{
		elements: max(e.elements, o.elements), nested: max(e.nested, o.nested),
		text: max(e.text, o.text), weight: max(e.weight, o.weight), container: e.container && o.container,
	}
}

// within bounds a value that has the extent, and for which a batch ensures the limit too.
func (e extent) within(limit extent) extent {
	e.elements, e.nested = min(e.elements, limit.elements), min(e.nested, limit.nested)
	e.text, e.weight = min(e.text, limit.text), min(e.weight, limit.weight)
	return e
}

// fits reports whether every number is at most that of a limit.
func (e extent) fits(limit extent) bool {
	return e.elements <= limit.elements && e.nested <= limit.nested && e.text <= limit.text && e.weight <= limit.weight
}

// size is what CEL takes as the size of a value, which can have the wrong type for a call.
func (e extent) size() float64 {
	if e.container {
		return e.elements
	}
	return max(e.elements, e.text)
}

// traversal is the cost of reading a text once: CEL charges a tenth per character, rounded up.
func (e extent) traversal() float64 { return 1 + e.size()/10 }

// product is zero if a factor is, even if the other one is infinite.
func product(a, b float64) float64 {
	if a == 0 || b == 0 {
		return 0
	}
	return a * b
}
