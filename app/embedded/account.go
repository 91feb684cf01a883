package embedded

import (
	"fmt"
	"os"
	"os/user"
	"strconv"
	"strings"
	"syscall"
)

// accounts are the users that the services run as when hubn runs as root, in
// order of preference: PostgreSQL refuses root. postgres and hubn come with
// packages; nobody exists everywhere.
var accounts = []string{"postgres", "hubn", "nobody"}

// Credential is whom the embedded services run as: nil, hubn's own user, unless
// hubn runs as root; then the first of postgres, hubn and nobody that exists.
func Credential() (*syscall.Credential, error) { return CredentialOf("") }

// CredentialOf is Credential with a user's name that overrides the choice. A
// name without root is an error unless it is the user that hubn runs as.
func CredentialOf(name string) (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, checkOwnName(name)
	}
	names := accounts
	if name != "" {
		names = []string{name}
	}
	for _, n := range names {
		account, err := user.Lookup(n)
		if err != nil {
			continue
		}
		return credentialOf(account)
	}
	return nil, fmt.Errorf("as root the embedded PostgreSQL must run as another user, and none of %s exists: create one (useradd --system hubn), or name one in embedded.user",
		strings.Join(names, ", "))
}

func checkOwnName(name string) error {
	if name == "" {
		return nil
	}
	own, err := user.Current()
	if err == nil && own.Username == name {
		return nil
	}
	return fmt.Errorf("embedded.user is %q, but only root can run the embedded services as another user: start hubn as root, or leave the setting empty", name)
}

func credentialOf(account *user.User) (*syscall.Credential, error) {
	uid, err := strconv.ParseUint(account.Uid, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("user %s has no numeric id: %q", account.Username, account.Uid)
	}
	gid, err := strconv.ParseUint(account.Gid, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("user %s has no numeric group: %q", account.Username, account.Gid)
	}
	if uid == 0 {
		return nil, fmt.Errorf("user %s is root, as which PostgreSQL does not run: name another in embedded.user", account.Username)
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
}

// accountName is the name behind a credential, for messages.
func accountName(credential *syscall.Credential) string {
	if credential == nil {
		return "the user that runs hubn"
	}
	id := strconv.FormatUint(uint64(credential.Uid), 10)
	if account, err := user.LookupId(id); err == nil {
		return account.Username
	}
	return "user " + id
}
