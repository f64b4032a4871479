//go:build !linux

package chaos

import "errors"

func (m *member) limitMemory(int) error { return errors.New("limits of memory need Linux") }

func (m *member) oomKills() int { return 0 }

func (m *member) freeGroup() {}
