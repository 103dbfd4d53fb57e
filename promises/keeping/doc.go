// Package keeping holds that ended entries are purged by themselves once they have been kept as long as was said, by one
// process at a time, and that nothing else is (G24).
package keeping
