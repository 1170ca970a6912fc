/** Limits requests to servlets. */
package io.sluicegate.servlet;
